# SPDX-License-Identifier: BSD-2-Clause
"""What a responder must do, with sets and dictionaries: packets in, write jobs and events out.

`Responder` judges; `Traffic` makes a hostile packet stream for it, packet by packet, and keeps the
jobs that must come out.
"""

from firmware.contract import QpError
from gateware.common.headers import IMMDT, METH, PACKET_TYPES, PETH, RETH, TSETH, NackReason, Opcode, Syndrome
from gateware.common.layouts import Verdict, WriteKind, due_fields
from gateware.common.tables import QpState
from tests.models.regions import allowed, bus_pieces

MASK24 = 0xffffff
DEAF   = (QpState.INIT, QpState.ERROR)
REASONS = {Verdict.NO_BUFFER: NackReason.NO_PKT_BUFFER, Verdict.TRIMMED: NackReason.TRIMMED,
    Verdict.TRIMMED_LASTHOP: NackReason.TRIMMED_LASTHOP}

def ahead(a, b):
    """How far PSN `a` is ahead of `b`, signed."""
    d = (a - b) & MASK24
    return d - (1 << 24) if d >> 23 else d

def usable(row):
    """May genuine packets go to all of the region?"""
    return row.get("usable", row["valid"] and row["rights"] & 2)

def unpack_due(bits):
    values = {}
    for name, width in due_fields():
        values[name] = bits & ((1 << width) - 1)
        bits >>= width
    return values

# Responder ----------------------------------------------------------------------------------------

class Life:
    """One life of a queue pair."""
    def __init__(self, attributes, state, msn=0, rqmsn=0):
        self.attributes, self.state = attributes, state
        self.expected = self.sweep = attributes["receive_psn"]
        self.highest  = (self.expected - 1) & MASK24
        self.msn, self.rqmsn = msn, rqmsn
        self.received = self.ooo = self.since = 0
        self.arrived  = {}                     # PSN -> (last, signal number or None), not yet passed.

class Responder:
    """Slow and obvious. `lives`, `regions`, `table` (pages), `signals` are what the driver wrote, `counts` the flags' counts."""
    def __init__(self, config):
        self.config   = config
        self.lives    = {}
        self.regions  = {}
        self.table    = []
        self.signals  = {}
        self.counts   = {}
        self.credits  = []                     # What the credit lines were told.
        self.stash    = {}                     # (queue pair, RQMSN modulo max_wimm) -> signal number; outlives lives.
        self.counters = dict.fromkeys(("receive_unknown_qp", "receive_accepted", "receive_duplicate", "receive_window",
            "receive_no_bitmap", "receive_not_ready", "receive_ended",
            "receive_no_buffer", "receive_trimmed", "receive_length", "receive_access", "probes", "receive_messages", "flags"), 0)

    def may_signal(self, number, qp):
        row = self.signals.get(number)
        return bool(row and row["valid"] and (row["any_qp"] or row["qp"] == qp))

    def in_region(self, p):
        if p["length"] == 0:
            return True
        row = self.regions.get(p["rkey"] >> 8)
        return (allowed(row, p["rkey"], 2, p["va"], p["length"]) and p["total"] >= p["length"] and
            bus_pieces(row, self.table, p["va"], p["length"]) is not None)

    def take(self, p):
        """Returns (jobs, events) for one packet."""
        jobs, events, index = [], [], p["dest_qp"] & 0xffff
        discard = [{"kind": WriteKind.DISCARD, "plane": p["plane"]}] if p["stored"] else []
        q = self.lives.get(index)
        probe, cut = p["opcode"] == Opcode.PROBE, p["verdict"] in (Verdict.TRIMMED, Verdict.TRIMMED_LASTHOP)
        if (not q or p["dest_qp"] >> 16 != q.attributes["generation"] or p["p_key"] != q.attributes["p_key"] or
                q.state == QpState.RESET or (q.state in DEAF and probe) or (q.state == QpState.ERROR and cut)):
            self.counters["receive_unknown_qp"] += 1
            return discard, events
        due   = dict(sack=0, ack=0, nack=0, syndrome=Syndrome.ACK)
        delta = ahead(p["psn"], q.expected)
        kind  = PACKET_TYPES[p["opcode"]]
        mtu   = 256 << q.attributes["mtu"]
        if kind.last:
            fits = p["length"] <= mtu and (p["length"] > 0 or kind.first)
        else:
            fits = p["length"] == mtu
        fits = fits and not (kind.imm and (p["rqmsn"] - q.rqmsn) & 0xffff >= self.config.max_wimm)
        window = 128*q.attributes.get("mpr", 0) or self.config.mpr
        if q.state in DEAF:
            self.counters["receive_not_ready" if q.state == QpState.INIT else "receive_ended"] += 1
            due.update(nack=1, reason=NackReason.NO_RESOURCE if q.state == QpState.INIT else NackReason.UNEXP_EVENT)
            jobs += discard
        elif probe:
            self.counters["probes"] += 1
            due.update(sack=1, ack=1)
            jobs += discard
        elif delta < 0:
            self.counters["receive_duplicate"] += 1
            due.update(sack=1, ack=1)
            jobs += discard
        elif delta >= min(window, self.config.mpr):
            self.counters["receive_window" if delta >= window else "receive_no_bitmap"] += 1
            due.update(nack=1, reason=NackReason.PSN_OOR_WINDOW if delta >= window else NackReason.NO_BITMAP)
            jobs += discard
        elif p["psn"] in q.arrived:
            self.counters["receive_duplicate"] += 1
            due.update(sack=1, ack=1)
            jobs += discard
        elif p["verdict"]:
            self.counters["receive_no_buffer" if p["verdict"] == Verdict.NO_BUFFER else "receive_trimmed"] += 1
            due.update(nack=1, reason=REASONS[p["verdict"]])
        elif not fits or not self.in_region(p) or (kind.imm and not self.may_signal(p["immediate"], index)):
            self.counters["receive_access" if fits else "receive_length"] += 1
            due.update(ack=1, syndrome=Syndrome.NAK_REMOTE_ACCESS if fits else Syndrome.NAK_INVALID_REQUEST)
            if q.attributes.get("page", 0) < self.config.pages:
                self.credits.append({"page": q.attributes.get("page", 0), "consumed": 0, "completed": 0, "qp": index,
                    "error": QpError.REFUSED_ACCESS if fits else QpError.REFUSED_INVALID})
            events.append({"qp": index, "reason": due["syndrome"], "base": p["psn"], "entropy": p["entropy"]})
            jobs += discard
        else:
            self.counters["receive_accepted"] += 1
            if p["stored"]:
                jobs.append({"kind": WriteKind.PAYLOAD, "plane": p["plane"], "offset": p["offset"],
                    "pieces": bus_pieces(self.regions[p["rkey"] >> 8], self.table, p["va"], p["length"])})
            if kind.imm:
                self.stash[index, p["rqmsn"] % self.config.max_wimm] = p["immediate"]
            q.arrived[p["psn"]] = (kind.last, kind.imm)
            q.received += 8 + 12 + 4 + 4*(p["timestamp"] != 0) + 16 + 4*kind.imm + p["length"] + -p["length"] % 4 + 4 + 40
            q.since    += max(p["length"], 1024)
            q.ooo      += delta != 0
            if ahead(p["psn"], q.highest) > 0:
                q.highest = p["psn"]
            due["sack"] = int(q.since > q.attributes["sack_trigger"] or p["a"] or p["ce"] or p["rtx"])
            named = []                         # [signal, messages in a row that name it]
            while q.expected in q.arrived:
                last, imm = q.arrived.pop(q.expected)
                if imm:
                    number = self.stash[index, q.rqmsn % self.config.max_wimm]
                    if not named or named[-1][0] != number:
                        named.append([number, 0])
                    named[-1][1] += 1
                    q.rqmsn = (q.rqmsn + 1) & 0xffff
                if last:
                    self.counters["receive_messages"] += 1
                    q.msn = (q.msn + 1) & 0xffff
                    due["ack"] = 1
                q.expected = (q.expected + 1) & MASK24
            for number, count in named:
                if self.may_signal(number, index):
                    self.counters["flags"] += 1
                    self.counts[number] = self.counts.get(number, 0) + count
                    jobs.append({"kind": WriteKind.WORD, "address": self.signals[number]["address"], "word": self.counts[number]})
        if due["sack"] or due["ack"] or due["nack"]:
            due.update(qp=index, generation=p["dest_qp"] >> 16, cack=(q.expected - 1) & MASK24, psn=p["psn"], probe=0,
                rtx=p["rtx"], ce=p["ce"], entropy=p["entropy"], plane=p["plane"], timestamp=p["timestamp"], msn=q.msn, ooo=q.ooo & 0xffff,
                rcvd=-(-q.received//256) & MASK24)
            if p["opcode"] == Opcode.PROBE:
                due.update(psn=p["probe_id"], probe=1)
            if due["syndrome"] != Syndrome.ACK:
                due["cack"] = p["psn"]
            if due["sack"]:
                q.since = 0
                due.update(self.bitmap(q))
            jobs.append({"kind": WriteKind.NOTIFY, "due": due})
        return jobs, events

    def bitmap(self, q):
        """Base and bits of a SACK: successive SACKs sweep what lies above the oldest hole."""
        start = q.sweep if 0 <= ahead(q.sweep, q.expected) < self.config.mpr else q.expected
        if ahead(q.highest, start) >= 64:
            base = start
        elif ahead(q.highest, q.expected) >= 64:
            base = (q.highest - 63) & MASK24
        else:
            base = q.expected
        q.sweep = q.expected if ahead(q.highest, base) < 64 else (base + 64) & MASK24
        return {"base": base, "bitmap": sum(1 << i for i in range(64) if (base + i) & MASK24 in q.arrived)}

# Traffic ------------------------------------------------------------------------------------------

HOSTILE = ("generation", "index", "p_key", "variant", "key_index", "rights", "invalid_region", "below_base", "past_end", "past_2_64",
    "past_table", "empty_region", "wrapping_region",
    "total", "length", "signal_range", "signal_invalid", "signal_qp", "rqmsn_above", "rqmsn_below")

class Traffic:
    """Packets for the queue pairs of a responder: mostly genuine ones in any order, and every kind of bad ones."""
    def __init__(self, model, random):
        self.model, self.random = model, random
        self.plans = {}                       # Queue pair -> {PSN: genuine packet}.

    def plan(self, qp, packets):
        """Random messages from the first PSN of the queue pair's life on."""
        r, m, q = self.random, self.model, self.model.lives[qp]
        mtu, psn, msn, rqmsn, plan = 256 << q.attributes["mtu"], q.expected, q.msn, q.rqmsn, {}
        usable = [n for n in m.signals if m.may_signal(n, qp)]
        while len(plan) < packets:
            count = r.choice([1, 1, 1, 2, 3, 7])
            imm   = r.random() < 0.4
            for i in range(count):
                first, last = i == 0, i == count - 1
                opcode = next(t.opcode for t in PACKET_TYPES.values() if t.data and (t.first, t.last, t.imm) == (first, last, imm and last))
                length = mtu if not last else r.choice([0, 1, 1, mtu - 1, mtu, r.randrange(1, mtu + 1)]) or int(not first)
                plan[psn] = self.packet(qp, opcode, psn, length, msn=msn, rqmsn=rqmsn, immediate=r.choice(usable))
                psn = (psn + 1) & MASK24
            msn   = (msn + 1) & 0xffff
            rqmsn = (rqmsn + imm) & 0xffff
        self.plans[qp] = plan

    def packet(self, qp, opcode, psn, length, **values):
        r, m, q = self.random, self.model, self.model.lives[qp]
        number  = r.choice([n for n, row in m.regions.items() if usable(row)])
        row     = m.regions[number]
        edge    = (-row["base"] - r.randrange(length + 1)) % 4096 + 4096*r.randrange(8)      # A packet across a page's end.
        offset  = r.choice([0, row["length"] - length, r.randrange(row["length"] - length + 1), min(edge, row["length"] - length)])
        return dict(opcode=opcode, p_key=q.attributes["p_key"], dest_qp=q.attributes["generation"] << 16 | qp, psn=psn, length=length,
            stored=int(length > 0), va=row["base"] + offset if length else r.getrandbits(64),
            rkey=number << 8 | row["variant"] if length else r.getrandbits(32), total=r.randrange(length, 1 << 24), **values)

    def dress(self, p):
        """What differs from copy to copy of a packet."""
        r = self.random
        return {**p, "a": int(r.random() < 0.05), "rtx": int(r.random() < 0.05), "ce": int(r.random() < 0.05), "entropy": r.getrandbits(16),
            "offset": r.randrange(8), "plane": r.getrandbits(1), "timestamp": r.getrandbits(16), "probe_id": r.getrandbits(16),
            "verdict": Verdict.GOOD}

    def next(self):
        """The next packet; one in ten has lost its payload on its way."""
        p = self.whole()
        if p["opcode"] == Opcode.PROBE or self.random.random() >= 0.1:
            return p
        verdict = self.random.choice(list(REASONS))
        lost    = () if verdict == Verdict.NO_BUFFER else ("length", "va", "rkey", "total", "immediate")
        return {**p, **dict.fromkeys(lost, 0), "stored": 0, "verdict": verdict}

    def whole(self):
        r, m = self.random, self.model
        qp   = r.choice(list(self.plans))
        q, plan = m.lives[qp], self.plans[qp]
        missing = [psn for psn in ((q.expected + i) & MASK24 for i in range(m.config.mpr)) if psn in plan and psn not in q.arrived and
            not (PACKET_TYPES[plan[psn]["opcode"]].imm and (plan[psn]["rqmsn"] - q.rqmsn) & 0xffff >= m.config.max_wimm)]
        dice = r.random()
        if dice < 0.06:
            return self.dress(dict(opcode=Opcode.PROBE, p_key=q.attributes["p_key"], dest_qp=q.attributes["generation"] << 16 | qp,
                psn=r.getrandbits(24), length=0, stored=0, va=0, rkey=0, total=0, msn=0, rqmsn=0, immediate=0))
        if dice < 0.12:
            window   = 128*q.attributes.get("mpr", 0) or m.config.mpr
            distance = r.choice([0, 1, r.randrange(1 << 10), (1 << 23) - 1 - m.config.mpr, abs(window - m.config.mpr)])
            p = dict(plan[q.expected] if q.expected in plan else self.packet(qp, Opcode.WRITE_ONLY, 0, 8, msn=0, rqmsn=0, immediate=0))
            return self.dress({**p, "psn": (q.expected + min(m.config.mpr, window) + distance) & MASK24})
        if dice < 0.18 or not missing:
            p = self.packet(qp, Opcode.WRITE_ONLY, 0, r.choice([0, 64]), msn=0, rqmsn=0, immediate=0)
            return self.dress({**p, "psn": (q.expected - r.choice([1, 1, 2, r.randrange(1, 1 << 10), 1 << 23])) & MASK24})
        if dice < 0.26 and q.arrived:
            psn = r.choice(list(q.arrived))
            return self.dress(plan[psn])
        if dice < 0.42:
            return self.spoil(qp, dict(plan[r.choice(missing)]), r.choice(HOSTILE))
        return self.dress(plan[missing[0] if r.random() < 0.35 else r.choice(missing[:r.choice([4, 20, 128])])])

    def spoil(self, qp, p, how):
        r, m, q = self.random, self.model, self.model.lives[qp]
        rows = m.regions
        def memory(number, offset, length=64):
            row = rows[number]
            p.update(opcode=Opcode.WRITE_ONLY, length=length, stored=1, total=length, rkey=number << 8 | row["variant"],
                va=(row["base"] + offset) & (2**64 - 1))
        good = next(n for n, row in rows.items() if usable(row))
        if how == "generation":
            p["dest_qp"] ^= 1 << r.randrange(16, 24)
        elif how == "index":
            p["dest_qp"] ^= m.config.queue_pairs << r.randrange(10)
        elif how == "p_key":
            p["p_key"] ^= 1 << r.randrange(16)
        elif how == "rights":
            memory(next(n for n, row in rows.items() if row["valid"] and not row["rights"] & 2), 0)
        elif how == "invalid_region":
            memory(next(n for n, row in rows.items() if not row["valid"]), 0)
        elif how == "below_base":
            memory(good, -r.choice([1, 64]))
        elif how == "past_end":
            memory(good, rows[good]["length"] - r.choice([1, 63]))
        elif how in ("past_table", "empty_region", "wrapping_region"):
            number = next(n for n, row in rows.items() if row.get("what") == how)
            length = r.choice([1, 64])
            memory(number, {"past_table": rows[number]["length"] - r.choice([64, 4096]), "empty_region": 0,
                "wrapping_region": 1024 - r.randrange(length)}[how], length)
        elif how == "past_2_64":
            memory(good, 0)
            p["va"] = 2**64 - r.choice([1, 32, 63])
        elif how in ("variant", "key_index"):
            memory(good, 0)
            p["rkey"] ^= 1 << r.randrange(8) if how == "variant" else m.config.regions << (8 + r.randrange(16))
        elif how == "total":
            memory(good, 0)
            p["total"] = 63
        elif how == "length":
            mtu = 256 << q.attributes["mtu"]
            p.update(opcode=r.choice([Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE]), length=r.choice([0, 1, mtu - 1]))
            if r.random() < 0.3:
                p.update(opcode=Opcode.WRITE_LAST, length=0)
            p["stored"] = int(p["length"] > 0)
        else:
            p.update(opcode=Opcode.WRITE_ONLY_IMM, length=0, stored=0, rqmsn=q.rqmsn)
            if how == "rqmsn_above":
                p["rqmsn"] = (q.rqmsn + r.choice([m.config.max_wimm, 1 << 15])) & 0xffff
            elif how == "rqmsn_below":
                p["rqmsn"] = (q.rqmsn - 1) & 0xffff
            elif how == "signal_range":
                p["immediate"] = m.config.signals << r.randrange(20)
            elif how == "signal_invalid":
                p["immediate"] = next(n for n, row in m.signals.items() if not row["valid"])
            else:
                p["immediate"] = next(n for n, row in m.signals.items() if row["valid"] and not row["any_qp"] and row["qp"] != qp)
        return self.dress(p)

# Beats --------------------------------------------------------------------------------------------

def beat_of(p, random):
    """The packet as it comes from the parser."""
    if p["opcode"] == Opcode.PROBE:
        body, ts = PETH.pack(probe_id=p["probe_id"], tx_timestamp=p["timestamp"], ftype=1), 0
    else:
        ts   = int(p["timestamp"] != 0)
        body = (METH.pack(rqmsn=p["rqmsn"], msn=p["msn"]) + TSETH.pack(tx_timestamp=p["timestamp"], ftype=1) +
            RETH.pack(va=p["va"], rkey=p["rkey"], length=p["total"]) + IMMDT.pack(immediate=p["immediate"]))
    keys = ("opcode", "p_key", "dest_qp", "a", "rtx", "psn", "entropy", "ce", "length", "offset", "stored", "verdict", "plane")
    return {**{k: p[k] for k in keys}, "ts": ts, "body": int.from_bytes(body, "little")}
