# SPDX-License-Identifier: BSD-2-Clause
"""Whole cards from the command line: files arrive, reports repeat, dead fabrics end by themselves."""

import json

import pytest

from soc.sim import cli

pytestmark = pytest.mark.xdist_group("card")

def simulate(tmp_path, *arguments):
    path = tmp_path/"report.json"
    status = cli.main([*map(str, arguments), "--json", str(path)])
    return status, json.loads(path.read_text())

@pytest.mark.parametrize("size", [0, 1, 63, 4095, 4096, 4097])
def test_a_file_arrives(size, tmp_path):
    source, out = tmp_path/"source", tmp_path/"out"
    source.write_bytes(bytes(i*7 & 0xff for i in range(size)))
    status, report = simulate(tmp_path, "--file", source, "--out", out, "--seed", size)
    assert status == 0 and report["ok"] and report["bytes"] == size and out.read_bytes() == source.read_bytes()
    assert report["packets"]["data"]["resent"] == 0 and report["timeouts"] == 0 and report["flags_raised"] == 1

def test_a_lossy_fabric_is_survived_and_repeats(tmp_path):
    arguments = ("--size", 100_001, "--mtu", 1024, "--message", 7001, "--loss", 0.02, "--duplicate", 0.01, "--corrupt", 0.005,
        "--jitter", 2000, "--paths", 4, "--queue-pairs", 3, "--seed", 11)
    first, second = simulate(tmp_path, *arguments), simulate(tmp_path, *arguments)
    assert first[0] == second[0] == 0
    data = first[1]["packets"]["data"]
    assert data["lost"] > 0 and data["resent"] <= 1.3*(data["lost"] + data["corrupted"]) + 1
    assert first[1].pop("wall") and second[1].pop("wall")
    assert first == second

def test_a_dead_fabric_ends_the_queue_pair(tmp_path, capsys):
    status, report = simulate(tmp_path, "--size", 5000, "--loss", 1)
    assert status == 1 and not report["ok"] and report["packets"]["data"]["delivered"] == 0
    assert report["qp_errors"] == [{"node": 0, "qp": 0, "reason": "retry budget used up"}]
    assert report["credit_errors"][0]["reason"] == "retry budget used up"
    assert "Queue pair 0 of card 0 ended in error: retry budget used up." in capsys.readouterr().err

def test_counters_are_shown_with_what_they_mean(tmp_path, capsys):
    status, report = simulate(tmp_path, "--size", 3000, "--mtu", 1024, "--counters")
    out, *tables = capsys.readouterr().out.split("\npaths of card ")
    shown = out.split("counters of card ")[1:]
    assert status == 0 and len(shown) == len(report["counters"]) == 2
    for text, counters in zip(shown, report["counters"], strict=True):
        rows = [line.split(None, 2) for line in text.splitlines()[1:] if line]
        assert {name: int(value.replace(",", "")) for name, value, _ in rows} == {n: v for n, v in counters.items() if v} != {}
        assert all(meaning.endswith(".") for _, _, meaning in rows)
    # Card 0 sent three packets and nothing else, each on a path of its own.
    assert len(tables) == 2 and tables[0].startswith("0\n") and tables[1].startswith("1: none in use")
    used = [p for p in report["paths"][0] if p["sent"]]
    assert [(p["plane"], p["state"], p["sent"], p["lost"]) for p in used] == [(0, 0, 1, 0)]*3
    assert [line.split()[1] for line in tables[0].splitlines()[2:5]] == [str(p["ev"]) for p in used]

def test_a_ring_of_cards(tmp_path):
    status, report = simulate(tmp_path, "--nodes", 3, "--pattern", "ring", "--size", 20_000, "--queue-pairs", 2)
    assert status == 0 and report["bytes"] == 60_000

def test_frames_are_captured(tmp_path):
    scapy = pytest.importorskip("scapy.utils")
    path  = tmp_path/"frames.pcapng"
    status, report = simulate(tmp_path, "--size", 10_000, "--pcap", path)
    frames = scapy.rdpcap(str(path))
    packets = report["packets"]
    assert status == 0 and len(frames) >= 2*(packets["data"]["sent"] + packets["control"]["sent"])
