# SPDX-License-Identifier: BSD-2-Clause
"""Headers: the tables agree with the standards' byte layouts, and gateware with Python in both engines."""

import random

import pytest
from litex.gen import LiteXModule
from migen import *

from gateware.common.headers import (
    AETH,
    BODY_BYTES,
    BTH,
    CC_STATE,
    DATA_BODY_BYTES,
    HEADERS,
    IMMDT,
    IPV4,
    METH,
    NETH,
    PACKET_TYPES,
    PETH,
    RETH,
    SETH,
    TSETH,
)
from tests.engines import ENGINES, simulate

def random_values(header, rng):
    return {f.name: rng.choice((0, (1 << f.width) - 1, rng.getrandbits(f.width))) for f in header.fields.values()}

# Python -------------------------------------------------------------------------------------------

def test_bytes_stand_where_the_standards_put_them():
    assert IPV4.pack(version=4, ihl=5, dscp=0x2e, ecn=3, total_length=0x1234, ttl=64, protocol=17, source=0x0a000001,
        destination=0x0a000002).hex() == "45bb12340000000040110000" + "0a000001" + "0a000002"
    assert BTH.pack(opcode=0xca, pad=3, p_key=0xffff, dest_qp=0x010203, a=1, ts=1, psn=0xabcdef).hex() \
        == "ca30ffff00010203" + "90abcdef"
    assert RETH.pack(va=0x1122334455667788, rkey=0x99aabbcc, length=0x100).hex() == "112233445566778899aabbcc00000100"
    assert SETH.pack(m=1, pr=1, ack_psn_offset=0x8001).hex()[:8] == "00228001"

@pytest.mark.parametrize("header", HEADERS, ids=lambda h: h.name)
def test_unpack_returns_what_was_packed(header):
    rng = random.Random(header.length)
    for _ in range(50):
        values = random_values(header, rng)
        assert header.unpack(header.pack(**values) + b"rest") == values
    with pytest.raises(ValueError, match="needs"):
        header.unpack(bytes(header.length - 1))

def test_value_too_large_for_its_field_is_refused():
    with pytest.raises(ValueError, match="BTH.psn is 16777216, but it has 24 bits"):
        BTH.pack(psn=1 << 24)

def test_bodies_of_the_packet_types_are_sums_of_their_headers():
    data = {n: METH.length + RETH.length + IMMDT.length*n for n in (0, 1)}
    for kind in PACKET_TYPES.values():
        if kind.data:
            assert kind.body == data[kind.imm], kind.name
    sizes = {"ACKNOWLEDGE": AETH.length, "SACK": SETH.length + CC_STATE.length, "NACK": NETH.length, "PROBE": PETH.length}
    assert {k.name: k.body for k in PACKET_TYPES.values() if not k.data} == sizes
    assert DATA_BODY_BYTES == METH.length + TSETH.length + RETH.length + IMMDT.length <= BODY_BYTES

# Gateware -----------------------------------------------------------------------------------------

class Codec(LiteXModule):
    """Every header: `vectors` from `values` by `encode`, and `fields` out of `received` by `field`."""
    def __init__(self):
        self.values, self.vectors, self.received, self.fields = {}, {}, {}, {}
        for h in HEADERS:
            self.values[h.name]   = {f.name: Signal(f.width, name=f"value_{f.name}") for f in h.fields.values()}
            self.vectors[h.name]  = Signal(8*h.length, name=f"vector_{h.name}")
            self.received[h.name] = Signal(8*h.length, name=f"received_{h.name}")
            self.fields[h.name]   = {f.name: Signal(f.width, name=f"field_{f.name}") for f in h.fields.values()}
            self.comb += h.encode(self.vectors[h.name], **self.values[h.name])
            self.comb += [s.eq(h.field(self.received[h.name], name)) for name, s in self.fields[h.name].items()]

@pytest.mark.parametrize("engine", ENGINES)
def test_gateware_encodes_and_decodes_as_python(engine):
    dut, rng = Codec(), random.Random(3)
    def run():
        for _ in range(25):
            values = {h.name: random_values(h, rng) for h in HEADERS}
            packed = {h.name: h.pack(**values[h.name]) for h in HEADERS}
            for name in values:
                yield [dut.values[name][f].eq(v) for f, v in values[name].items()]
                yield dut.received[name].eq(int.from_bytes(packed[name], "little"))
            yield
            for name in values:
                assert (yield dut.vectors[name]).to_bytes(len(packed[name]), "little") == packed[name], name
                for f, v in values[name].items():
                    assert (yield dut.fields[name][f]) == v, f"{name}.{f}"
    simulate(dut, [run()], engine=engine)
