# SPDX-License-Identifier: BSD-2-Clause
"""Figures of a transfer: one dictionary (`--json`) and the text made from it.

Counts of what happened to a frame come from the fabric's record, times from the harness, error states
and `timeouts` from the cards' registers.
"""

from firmware.contract import QP_ERROR_TEXT, PathState
from gateware.common import headers as H

PLANE_GBPS = 10.0

# The wire limit -----------------------------------------------------------------------------------

def wire_bytes(payload, immediate, timestamp=True, ipv6=False):
    """Bytes of line time of one data packet, preamble and gap included."""
    body  = H.METH.length + H.RETH.length + (H.TSETH.length if timestamp else 0) + (H.IMMDT.length if immediate else 0)
    frame = (H.PREFIX6_BYTES if ipv6 else H.PREFIX_BYTES) + body + payload + -payload % 4 + H.ICRC_BYTES
    return max(frame, 60) + H.FCS_BYTES + H.GAP_BYTES

def wire_limit(messages, mtu, planes, immediate=True, ipv6=False):
    """Gb/s of payload that `planes` carry if nothing but these messages is on the wire."""
    payload = wire = 0
    for length in messages:
        full, rest = divmod(length, mtu)
        if full and not rest:
            full, rest = full - 1, mtu
        payload += length
        wire    += full*wire_bytes(mtu, False, ipv6=ipv6) + wire_bytes(rest, immediate, ipv6=ipv6)
    return planes*PLANE_GBPS*payload/wire if wire else 0.0

# The dictionary -----------------------------------------------------------------------------------

def percentile(values, share):
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share*len(ordered)*1000)//1000) - 1))] if ordered else 0

def figures(transfer, policy, stopped=None, setup_cycles=0):
    """Everything but `wall`. `stopped`: the sentence with which the simulation ended early."""
    cluster  = transfer.cluster
    sim      = cluster.sim
    us       = 1e6/cluster.config.clk_freq
    lengths  = transfer.messages()
    span     = transfer.span()
    total    = sum(len(f.data) for f in transfer.flows)
    latency  = transfer.latencies()
    stats    = cluster.fabric.statistics(transfer.start)
    errors   = [] if stopped and sim.count(0) else cluster.queue_pair_errors()
    counters = [] if stopped and sim.count(0) else [n.counters() for n in cluster.nodes]
    traffic  = [sim.traffic_counts(n.index) for n in cluster.nodes]
    wrong, strays = transfer.differences(), transfer.strays()
    credits  = [(n, p, n.credit(p)) for n in cluster.nodes for p in n.pages]
    tlps     = sum(t["doorbell"][0] + t["credit"][0] for t in traffic)
    data     = sum(t["doorbell"][1] + t["credit"][1] for t in traffic)
    flags    = sim.count(1)
    problems = []
    if stopped:
        problems.append(stopped)
    for node, qp, reason in errors:
        problems.append(f"Queue pair {qp} of card {node} ended in error: {QP_ERROR_TEXT.get(reason, f'reason {reason}')}.")
    for n, p, c in credits:
        if c["error"]:
            problems.append(f"Doorbell page {p.number} of card {n.index} reports an error of queue pair {c['error_qp']}: "
                            f"{QP_ERROR_TEXT.get(c['error'], 'reason ' + str(c['error']))}.")
    if flags:
        problems.append(f"{flags} flags came before their data; the first at {sim.sentences(1)[0]}")
    for flow, first, count in wrong:
        f = transfer.flows[flow]
        problems.append(f"{count} of {len(f.data)} bytes from card {f.sender.index} to card {f.receiver.index} differ, "
                        f"the first is byte {first}.")
    for node, address in strays:
        problems.append(f"Card {node} wrote outside of its buffers, at 0x{address:x}.")
    return {
        "ok": not problems,
        "bytes": total,
        "match": not wrong,
        "problems": problems,
        "seed": cluster.seed,
        "cycles": sim.now(),
        "cycles_transfer": span,
        "seconds_simulated": sim.now()/cluster.config.clk_freq,
        "goodput_gbps": round(8*total/len(transfer.flows)/(span/cluster.config.clk_freq)*1e-9, 6) if span else 0.0,
        "wire_limit_gbps": round(wire_limit(lengths, transfer.mtu, cluster.planes, ipv6=cluster.ipv6), 6),
        "messages": len(lengths),
        "packets": {"data": stats["data"], "control": stats["control"]},
        "timeouts": sum(value for c in counters for name, value in c.items() if name == "timeouts"),
        "latency_us": {"p50": round(percentile(latency, 0.5)*us, 4), "p99": round(percentile(latency, 0.99)*us, 4),
            "max": round(max(latency, default=0)*us, 4)},
        "latency_cycles": {"p50": percentile(latency, 0.5), "p99": percentile(latency, 0.99), "max": max(latency, default=0)},
        "flags_raised": sim.count(6),
        "flags_before_data": flags,
        "pcie": {
            "control_tlps_per_transfer":  round(tlps/len(lengths), 4),
            "control_bytes_per_transfer": round((data + 16*tlps)/len(lengths), 4),
            "control_data_bytes_per_transfer": round(data/len(lengths), 4),
            "tlps":  {kind: sum(t[kind][0] for t in traffic) for kind in traffic[0]},
            "bytes": {kind: sum(t[kind][1] for t in traffic) for kind in traffic[0]},
        },
        "qp_errors": [{"node": n, "qp": q, "reason": QP_ERROR_TEXT.get(r, f"reason {r}")} for n, q, r in errors],
        "credit_errors": [{"node": n.index, "page": p.number, "qp": c["error_qp"], "count": c["error_count"],
            "reason": QP_ERROR_TEXT.get(c["error"], f"reason {c['error']}")} for n, p, c in credits if c["error"]],
        "per_path": cluster.fabric.per_path(transfer.start),
        "counters": counters,
        "policy": policy,
    }

# The text -----------------------------------------------------------------------------------------

def text(f):
    """The report of `figures` plus `wall`, as lines."""
    d, c = f["packets"]["data"], f["packets"]["control"]
    share = 100*f["goodput_gbps"]/f["wire_limit_gbps"] if f["wire_limit_gbps"] else 0
    rows = [
        ("bytes", f"{f['bytes']:,} in {f['messages']:,} messages, {'all match' if f['match'] else 'NOT all match'}"),
        ("goodput", f"{f['goodput_gbps']:.3f} Gb/s, {share:.1f} % of the wire limit of {f['wire_limit_gbps']:.3f} Gb/s"),
        ("latency", "{p50:.2f} us median, {p99:.2f} us 99th percentile".format(**f["latency_us"])
            + " ({p50:,} and {p99:,} cycles), token to flag".format(**f["latency_cycles"])),
        ("data packets", "{sent:,} sent, {delivered:,} delivered, {lost:,} lost, {corrupted:,} corrupted, {duplicated:,} duplicated, "
            "{reordered:,} reordered".format(**d) + (f", {d['trimmed']:,} trimmed" if d["trimmed"] else "")),
        ("resends", "{resent:,}, of which {spurious:,} spurious".format(**d) + f"; {f['timeouts']:,} timeouts"),
        ("control packets", "{sent:,} sent, {lost:,} lost, {corrupted:,} corrupted".format(**c)),
        ("PCIe control", "{control_tlps_per_transfer:.2f} TLPs, {control_bytes_per_transfer:.1f} bytes per message".format(**f["pcie"])),
        ("flags", f"{f['flags_raised']:,} raised, {f['flags_before_data']:,} before their data"),
        ("paths", ", ".join(f"{p['plane']}.{p['path']}: {p['packets']:,} ({p['lost']:,} lost)" for p in f["per_path"])),
        ("policy", f["policy"]),
        ("simulated", f"{f['cycles']:,} cycles, {1e6*f['seconds_simulated']:,.1f} us"),
    ]
    if "wall" in f:
        rows.append(("wall time", "{seconds:.1f} s, {cycles_per_second:,.0f} cycles/s".format(**f["wall"])))
    return [f"{name:<16} {value}" for name, value in rows]

STATES = {value: name for name, value in vars(PathState).items() if not name.startswith("_")}

def paths_text(paths):
    """Paths that carried packets or are not GOOD, card by card, as lines of a table. `paths`: per card what `Driver.paths` gives."""
    lines = []
    for node, found in enumerate(paths):
        shown  = [p for p in found if p["sent"] or p["state"] != PathState.GOOD]
        lines += ["", f"paths of card {node}{'' if shown else ': none in use'}"]
        if shown:
            lines.append("  peer   ev  plane  entropy  state             sent     lost   marked")
        lines += ["  {peer:>4} {ev:>4} {plane:>6}   0x{entropy:04x}  {name:<11} {sent:>10,} {lost:>8,} {marked:>8,}".format(
            **p, name=STATES[p["state"]]) for p in shown]
    return lines

def drops_text(drops):
    """What was dropped per queue pair and per doorbell page, as lines. `drops`: per card {"queue pair 3": {reason: count}}."""
    lines = []
    for node, found in enumerate(drops):
        shown  = {what: [f"{name} {count:,}" for name, count in counts.items() if count] for what, counts in found.items()}
        lines += ["", f"dropped or refused at card {node}{'' if any(shown.values()) else ': nothing'}"]
        lines += [f"  {what}: {', '.join(counts)}" for what, counts in shown.items() if counts]
    return lines

def counters_text(counters, descriptions):
    """Counters that are not zero, card by card, as lines. `descriptions`: register name -> text."""
    lines = []
    for node, values in enumerate(counters):
        shown = {name: value for name, value in values.items() if value}
        lines += ["", f"counters of card {node}{'' if shown else ': all zero'}"]
        width = max(map(len, shown), default=0)
        lines += [f"  {name:<{width}} {value:>13,}  {descriptions.get('nic_count_' + name, '')}".rstrip() for name, value in shown.items()]
    return lines or ["", "The cards could not be asked for their counters."]
