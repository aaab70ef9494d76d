# SPDX-License-Identifier: BSD-2-Clause
"""What the host side relies on in LitePCIe's TLP depacketizer, and the two defects it works round.

It moves the data of a TLP with a header of three dwords down by three lanes. A TLP whose last dword
fills the bus then needs one more beat that the depacketizer does not make: the caller must add it.
Requests with addresses of 64 bits are dropped.
"""

import pytest
from litepcie.tlp.common import fmt_type_dict
from litepcie.tlp.depacketizer import LitePCIeTLPDepacketizer

from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import simulate

WIDTHS = (64, 128)
DUTS   = {}

def depacketizer(width):
    if width not in DUTS:
        DUTS[width] = LitePCIeTLPDepacketizer(width, "little", address_mask=0)
    return DUTS[width]

def head(kind, length):
    return fmt_type_dict[kind] << 24 | length

def write_tlp(data, address=0x1230, tag=7, requester=0x0102):
    return [head("mem_wr32", len(data)), requester << 16 | tag << 8 | 0xff, address, *data]

def read_tlp(length, address=0x1230, tag=9, requester=0x0102):
    return [head("mem_rd32", length), requester << 16 | tag << 8 | 0xff, address]

def completion_tlp(data, count, tag=5, status=0, lower=0x20):
    return [head("cpld", len(data)), 0x0304 << 16 | status << 13 | count, 0x0102 << 16 | tag << 8 | lower, *data]

def beats_of(dwords, width, tail=True):
    """Bus beats of a TLP; `tail` adds the beat that the depacketizer lacks."""
    step    = width//32
    payload = len(dwords) - 3
    if tail and len(dwords) % step == 0 and payload > 1:
        dwords = dwords + [0]*step
    words = [dwords[n:n + step] for n in range(0, len(dwords), step)]
    return [{"dat": sum(d << 32*n for n, d in enumerate(w)), "be": (1 << 4*len(w)) - 1, "last": n == len(words) - 1}
        for n, w in enumerate(words)]

def run(width, tlps, seed=1, tail=True, idle=0.3, stall=0.3):
    """Requests and completions out of these TLPs, as lists of (fields of the first beat, dwords)."""
    dut    = depacketizer(width)
    source = StreamSource(dut.sink, [b for t in tlps for b in beats_of(t, width, tail)], seed, idle)
    # Lanes behind the data follow the next TLP even while the beat is stalled.
    sinks  = [StreamSink(e, seed + n, stall, loose={"dat"}) for n, e in enumerate((dut.req_source, dut.cmp_source))]
    def rest():
        yield from source.run()
        for _ in range(50):
            yield
    simulate(dut, [rest(), *(s.run() for s in sinks)], seed=seed)
    def joined(sink):
        packets, first, dwords = [], None, []
        for beat in sink.beats:
            first  = first or beat
            dwords += [(beat["dat"] >> 32*n) & 0xffffffff for n in range(width//32)]
            if beat["last"]:
                packets.append((first, dwords))
                first, dwords = None, []
        assert first is None
        return packets
    return [joined(s) for s in sinks]

def data_of(count, start=0xd0):
    return [(start + n) * 0x01010101 & 0xffffffff for n in range(count)]

@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_header_and_data_of_writes_reads_and_completions(width, seed):
    sizes = (1, 2, 3, 4, 5, 8, 9, 1)
    tlps  = [t for n in sizes for t in (write_tlp(data_of(n), tag=n), read_tlp(n, tag=n), completion_tlp(data_of(n), 4*n, tag=n))]
    requests, completions = run(width, tlps, seed)
    writes = [r for r in requests if r[0]["we"]]
    reads  = [r for r in requests if not r[0]["we"]]
    assert [len(writes), len(reads), len(completions)] == [len(sizes)]*3
    for n, (w, dwords), (r, _), (c, filled) in zip(sizes, writes, reads, completions, strict=True):
        assert (w["adr"], w["len"], w["tag"], w["req_id"]) == (0x1230, n, n, 0x0102) and dwords[:n] == data_of(n)
        assert (r["adr"], r["len"], r["tag"]) == (0x1230, n, n)
        assert (c["adr"], c["len"], c["tag"], c["err"], c["end"]) == (0x20, n, n, 0, 1) and filled[:n] == data_of(n)

@pytest.mark.parametrize("width", WIDTHS)
def test_end_and_error_of_completions(width):
    _, completions = run(width, [completion_tlp(data_of(4), 32), completion_tlp(data_of(4), 16), completion_tlp([], 4, status=1)])
    assert [(c["end"], c["err"]) for c, _ in completions] == [(0, 0), (1, 0), (0, 1)]

@pytest.mark.parametrize("width, size", [(64, 3), (64, 5), (128, 5), (128, 9)])
def test_defect_a_full_last_beat_loses_a_dword(width, size):
    (_, dwords), = run(width, [write_tlp(data_of(size))], tail=False)[0]
    assert len(dwords) < size

@pytest.mark.parametrize("width", WIDTHS)
def test_defect_requests_with_long_addresses_vanish(width):
    tlp = [head("mem_wr64", 1), 0xff, 1, 0x1230, 0xdddddddd]
    assert run(width, [tlp, write_tlp(data_of(1))])[0][0][0]["adr"] == 0x1230
    assert len(run(width, [tlp, write_tlp(data_of(1))])[0]) == 1
