# SPDX-License-Identifier: BSD-2-Clause
"""The one driver and the one monitor of streams; the monitor checks the handshake law.

A valid beat stays, unchanged, until it is taken. While it offers nothing, the source puts random
values on the fields, since nobody may look at them. Beats are dictionaries from field name to value
(payload, param, `first` and `last`); what a beat does not name is 0.
"""

import random

__all__ = ["StreamSink", "StreamSource", "beats_of_bytes", "packets"]

def fields_of(endpoint):
    """{name: Signal} of payload, param, first and last."""
    fields = {name: getattr(endpoint, name) for name, *_ in
        endpoint.description.payload_layout + endpoint.description.param_layout}
    return {**fields, "first": endpoint.first, "last": endpoint.last}

class StreamSource:
    """Sends `beats` into `endpoint`; `run()` is an active generator that ends when the last was taken.

    idle : float
        Probability that a cycle between two beats stays idle.
    stops : {beat: cycles}
        So many cycles stay idle before these beats in any case.
    """
    def __init__(self, endpoint, beats, seed=1, idle=0.3, stops=None):
        self.endpoint = endpoint
        self.beats    = beats
        self.idle     = idle
        self.random   = random.Random(seed)
        self.fields   = fields_of(endpoint)
        self.stops    = stops or {}
        self.sent     = 0

    def _junk(self):
        return [s.eq(self.random.getrandbits(len(s))) for s in self.fields.values()]

    def _put(self, beat):
        unknown = set(beat) - set(self.fields)
        if unknown:
            raise ValueError(f"The stream has no field {', '.join(sorted(unknown))}; its fields are {', '.join(self.fields)}.")
        for name, value in beat.items():
            if not 0 <= value < (1 << len(self.fields[name])):
                raise ValueError(f"Field {name} is {value}, but it has {len(self.fields[name])} bits.")
        return [s.eq(int(beat.get(name, 0))) for name, s in self.fields.items()]

    def run(self):
        valid, ready = self.endpoint.valid, self.endpoint.ready
        for n, beat in enumerate(self.beats):
            for _ in range(self.stops.get(n, 0)):
                yield
            while self.random.random() < self.idle:
                yield
            yield self._put(beat) + [valid.eq(1)]
            yield
            while not (yield ready):
                yield
            self.sent += 1
            yield self._junk() + [valid.eq(0)]

class StreamSink:
    """Takes beats from `endpoint`; `run()` is passive, `beats` collects dictionaries of all fields.

    stall : float
        Probability that a cycle is not ready.
    loose : names
        Fields that may change while stalled (void lanes of foreign cores).
    stops : {beat: cycles}
        These beats are not taken for so many cycles in any case, valid or not.
    """
    def __init__(self, endpoint, seed=2, stall=0.3, loose=(), stops=None):
        self.endpoint = endpoint
        self.stall    = stall
        self.random   = random.Random(seed)
        self.fields   = fields_of(endpoint)
        self.beats    = []
        self.stops    = dict(stops or {})
        self.strict   = [name for name in self.fields if name not in loose]

    def run(self):
        yield "passive"
        names   = list(self.fields)
        request = [self.fields[name] for name in names]
        valid, ready, held = self.endpoint.valid, 0, None
        while True:
            if (yield valid):
                beat = dict(zip(names, (yield request), strict=True))
                if held is not None and any(beat[n] != held[n] for n in self.strict):
                    changed = ", ".join(f"{n} {held[n]:#x} -> {beat[n]:#x}" for n in self.strict if beat[n] != held[n])
                    raise AssertionError(f"A stalled beat changed before it was taken: {changed}.")
                if ready:
                    self.beats.append(beat)
                held = None if ready else beat
            elif held is not None:
                raise AssertionError("A stalled beat was withdrawn: valid fell before the beat was taken.")
            ready = int(self.random.random() >= self.stall)
            if self.stops.get(len(self.beats), 0):
                self.stops[len(self.beats)] -= 1
                ready = 0
            yield self.endpoint.ready.eq(ready)
            yield

    def wait(self, count):
        """Active: until `count` beats have arrived in all."""
        while len(self.beats) < count:
            yield

    def wait_packets(self, count):
        """Active: until `count` beats with `last` have arrived in all."""
        while sum(beat["last"] for beat in self.beats) < count:
            yield

def packets(sink, field="data"):
    """The collected values of `field` as lists, one per packet; an unfinished packet is an error."""
    done, current = [], []
    for beat in sink.beats:
        current.append(beat[field])
        if beat["last"]:
            done.append(current)
            current = []
    assert not current, f"The stream ended within a packet of {len(current)} beats."
    return done

def beats_of_bytes(data, width, field="data", **params):
    """Beats of one packet: byte 0 in lane 0, the rest of the last word 0; no bytes make one empty beat."""
    step  = width//8
    words = [int.from_bytes(data[n:n + step], "little") for n in range(0, max(len(data), 1), step)]
    return [{field: w, **params, "first": n == 0, "last": n == len(words) - 1} for n, w in enumerate(words)]
