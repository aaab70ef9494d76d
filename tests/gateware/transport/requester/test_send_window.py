# SPDX-License-Identifier: BSD-2-Clause
"""The send limits never lock: a peer that answers only what asks for it lets everything through.

The peer sends a SACK for a packet that asks, or when its byte trigger fires, and a Transport ACK for a completed
message, which tells nothing of bytes. Windows are random, from less than one packet up.
"""

import pytest

from tests.gateware.transport.harness import PSN, WINDOWS, pulse, put, wait
from tests.gateware.transport.requester.test_segmenter import World, dut_of

class Peer:
    """Answers the packets of all queue pairs of a `World`, each after a while."""
    def __init__(self, world, trigger, drift=0):
        self.world, self.trigger, self.drift = world, trigger, drift
        self.queue, self.since, self.sacks = [], {}, 0
        check = world.check
        def checked(qp, psn, message, msn, rtx, a):
            check(qp, psn, message, msn, rtx, a)
            self.queue.append((world.now + 20 + world.rng.randrange(40), qp, world.qps[qp].taken, a))
        world.check = checked

    def run(self):
        yield "passive"
        w = self.world
        while True:
            if self.queue and self.queue[0][0] <= w.now:
                _, n, taken, a = self.queue.pop(0)
                q = w.qps[n]
                size = q.sizes[taken - 1]
                self.since[n] = self.since.get(n, 0) + max(1024, size)
                q.unacked = (q.start + taken) % PSN
                retired = q.retired
                while q.retired < len(q.ends) and q.ends[q.retired] <= taken:
                    q.retired += 1
                if a or self.since[n] > self.trigger:
                    self.since[n] = 0
                    q.arrived = taken
                    self.sacks += 1
                elif retired == q.retired:
                    continue
                row = q.acks()
                row["received"] = (row["received"] - self.drift*q.arrived) % 2**24
                yield from put(w.dut.ack_state, n, **row)
                yield from pulse(w.dut.scheduler.wakes[2], n)
            yield

@pytest.mark.parametrize("mpr", WINDOWS)
@pytest.mark.parametrize("trigger", [4096, 16384, 2**30])
def test_everything_leaves_although_the_peer_answers_only_what_asks(mpr, trigger):
    config = WINDOWS[mpr]
    world  = World(dut_of(mpr), config, trigger % 97 + mpr, stall=0.1)
    world.done = True                          # No resends here.
    peer   = Peer(world, trigger)
    def drive():
        yield from world.setup()
        for _ in range(12):
            for qp in range(config.queue_pairs):
                yield from world.post(qp, length=world.rng.randrange(30)*(256 << world.qps[qp].mtu)//2)
            yield from wait(world.rng.randrange(200))
        for _ in range(600):
            yield from wait(200)
            if all(q.taken == len(q.packets) for q in world.qps):
                break
        for q in world.qps:
            assert q.taken == len(q.packets), f"{len(q.packets) - q.taken} packets wait for ever: cwnd {q.cwnd}, limit {q.limit}"
    world.run(drive(), peer.run())
    assert peer.sacks > 20

def test_a_peer_that_counts_less_than_is_sent_cannot_use_up_the_window():
    """It counts 256 bytes less per packet: the window is then bounded by what is outstanding, and never closes for good."""
    config = WINDOWS[128]
    world  = World(dut_of(128), config, 3, stall=0)
    world.done = True
    peer   = Peer(world, 4096, drift=1)
    def drive():
        for q in world.qps:
            q.__init__(world.rng, q.start, 2, config, limited=False)
            q.cwnd = 5*q.full//256             # Five packets; the drift of 20 packets would close it.
        yield from world.setup()
        for _ in range(8):
            for qp in range(config.queue_pairs):
                yield from world.post(qp, length=30*1024)
            yield from wait(600)
        for _ in range(300):
            yield from wait(200)
        for q in world.qps:
            assert q.taken == len(q.packets) and q.taken > 200, f"{len(q.packets) - q.taken} packets wait for ever"
    world.run(drive(), peer.run())
