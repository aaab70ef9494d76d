# SPDX-License-Identifier: BSD-2-Clause
"""Memory regions on whole cards: scattered pages under loss, and rows that grant nothing."""

import random

import pytest

from gateware.common import tables as T
from soc.sim.report import figures
from soc.sim.transfer import Transfer
from tests.system.bench import LIMIT, Link, cluster, group
from tests.system.test_transfers import ROUGH, right

pytestmark = [group(2), pytest.mark.timeout(300)]

@pytest.mark.parametrize("page_size, size, mtu", [
    (4096, 100_001, 4096), (4096, 50_003, 1024), (65536, 150_000, 4096), (2 << 20, 60_000, 2048)])
def test_scattered_pages_hold_every_byte_over_a_rough_fabric(page_size, size, mtu):
    """Source and destination begin anywhere in a page, so packets cross pages on both sides; nothing else is written."""
    with cluster(seed=page_size + mtu, **ROUGH) as c:
        data     = random.Random(page_size).randbytes(size)
        transfer = Transfer(c, lambda flow: data, message=30_011, mtu=mtu, queue_pairs=2, page_size=page_size)
        transfer.run(limit=4_000_000, wall=200)
        right(figures(transfer, "mrc"))

def test_a_region_that_runs_past_the_table_grants_only_its_pages():
    """The last row of the table belongs to it, the next one does not exist: the message there is refused, and nothing written."""
    with cluster(seed=3) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=4096, slots=2, mtu=1024)
        last = b.config.translations - 1
        page = b.alloc(4096, align=4096)
        b.fill(page, b"\xa5"*4096)
        b.write_row(T.TRANSLATION, last, bus=page)
        b.write_row(T.REGION, 40, valid=1, variant=7, rights=T.Rights.REMOTE_WRITE, base=0x1000_0000, length=8192, page_shift=12,
            first_page=last)
        remote  = 0x1000_0000
        context = link.add_context(remote=remote, remote_stride=4096, rkey=40 << 8 | 7, slots=2, length=100)
        data    = a.random.randbytes(100)
        a.fill(link.source, data)
        a.post(context, slot=0, length=100)
        c.poll(link.signal, 1, **LIMIT)
        assert b.bytes_at(page, 4096) == data + b"\xa5"*3996
        a.post(context, slot=1, length=100)
        c.run_until(lambda: link.credit["completed"] == 2, **LIMIT)
        assert link.credit["error"] == 3 and b.counters()["receive_access"] >= 1
        assert b.bytes_at(page, 4096) == data + b"\xa5"*3996 and link.untouched()

def test_a_local_region_without_pages_ends_its_queue_pair():
    """The sender's own region names rows past the table: nothing is read, the message fails, others go on."""
    with cluster(seed=4) as c:
        a, b = c.nodes
        bad, good = (Link(c, a, b, size=2000, mtu=1024) for _ in range(2))
        a.write_row(T.REGION, bad.lkey >> 8, valid=1, variant=bad.lkey & 0xff, rights=T.Rights.LOCAL_READ, base=bad.source, length=1 << 20,
            page_shift=16, first_page=a.config.translations)
        a.post(bad.context, length=2000)
        good.post()
        good.finish()
        c.run_until(lambda: bad.credit["completed"] == 1, **LIMIT)
        assert bad.credit["error"] == 5 and bad.untouched()
