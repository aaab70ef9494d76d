# SPDX-License-Identifier: BSD-2-Clause
"""The command line's refusals and the report's arithmetic: no card is built here."""

import re

import pytest

from soc.sim import cli
from soc.sim.report import counters_text, paths_text, percentile, wire_bytes, wire_limit
from soc.sim.transfer import pattern

@pytest.mark.parametrize("arguments, words", [
    (["--loss", "1.5"], "--loss is 1.5, but a probability is between 0 and 1."),
    (["--corrupt", "-0.1"], "--corrupt is -0.1"),
    (["--trim", "2"], "--trim is 2.0"),
    (["--mark", "-1"], "--mark is -1.0"),
    (["--soak", "--loss", "0.1"], "--soak has a mix of its own: it takes --packets, --seed and --policy, not --loss."),
    (["--soak", "--packets", "0"], "--packets is 0"),
    (["--loss", "nan"], "--loss is nan"),
    (["--jitter", "nan"], "--jitter is nan"),
    (["--planes", "5"], "--planes is 5, but it must be between 1 and 4."),
    (["--planes", "two"], "invalid int value: 'two'"),
    (["--mtu", "1500"], "--mtu is 1500"),
    (["--message", "0"], "--message is 0"),
    (["--size", "-1"], "--size is -1"),
    (["--size", str(1 << 26)], "do not fit"),
    (["--page-size", "8191"], "--page-size is 8191, but it is 4096, 65536, 2097152 or none."),
    (["--page-size", "4096", "--size", str(17 << 20)], "do not fit"),
    (["--page-size", "2097152", "--size", str(56 << 20)], "do not fit"),
    (["--nodes", "3"], "even number of cards"),
    (["--queue-pairs", "17", "--pattern", "ring"], "between 1 and 16"),
    (["--file", "no/such/file"], "The file no/such/file does not exist."),
    (["--file", "."], "is a folder"),
    (["--policy", "no_such_policy.py"], "does not exist"),
    (["--json", "no/such/folder/x.json"], "does not exist"),
    (["--bogus"], "Unrecognized arguments: --bogus."),
])
def test_impossible_options_are_one_sentence(arguments, words, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and words in err, err
    assert list(tmp_path.iterdir()) == []

def test_help_names_every_option_with_its_default(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert stop.value.code == 0
    for name in ("file", "out", "size", "planes", "paths", "loss", "duplicate", "corrupt", "trim", "mark", "delay", "jitter", "mtu",
                 "message", "page-size", "queue-pairs", "nodes", "pattern", "seed", "policy", "json", "pcap", "trace", "console",
                 "counters", "soak", "packets", "ipv6"):
        assert re.search(rf"--{name}\b", text), name
    assert "(default: 1048576)" in text and "None" not in text

def test_wire_limit_of_known_packets():
    assert wire_bytes(4096, immediate=False) == 4202
    assert wire_limit([4096*1000], 4096, 1) == pytest.approx(9.748, abs=0.001)
    assert 10e9/8/wire_bytes(64, immediate=False) == pytest.approx(7.35e6, rel=0.001)
    assert wire_bytes(4096, immediate=False, ipv6=True) == 4222
    assert wire_limit([4096*1000], 4096, 1, ipv6=True) == pytest.approx(9.702, abs=0.001)
    assert wire_limit([0], 4096, 1) == 0 and wire_limit([4096, 1], 4096, 2) > wire_limit([1], 4096, 2)

def test_percentiles_are_nearest_rank():
    assert [percentile(list(range(1, 101)), p) for p in (0.5, 0.99, 1)] == [50, 99, 100]
    assert percentile([7], 0.99) == 7 and percentile([], 0.5) == 0

def test_patterns():
    assert pattern("pair", 4) == [(0, 1), (2, 3)]
    assert pattern("ring", 3) == [(0, 1), (1, 2), (2, 0)]

def test_counters_that_are_zero_are_left_out():
    counters = [{"tokens": 12345, "probes": 0, "sent_data": 7}, {"tokens": 0}]
    meanings = {"nic_count_tokens": "Tokens taken.", "nic_count_probes": "Probes answered."}
    assert counters_text(counters, meanings) == ["", "counters of card 0",
        "  tokens           12,345  Tokens taken.", "  sent_data             7", "", "counters of card 1: all zero"]
    assert "could not be asked" in counters_text([], {})[1]

def test_paths_in_use_and_bad_ones_are_shown():
    rows = [dict(peer=1, ev=n, plane=n % 2, entropy=0xc000 + n, state=state, sent=sent, lost=0, marked=n)
        for n, (state, sent) in enumerate(((0, 12345), (0, 0), (2, 0)))]
    lines = paths_text([rows, rows[1:2]])
    assert [line.split() for line in lines[3:5]] == [["1", "0", "0", "0xc000", "GOOD", "12,345", "0", "0"],
        ["1", "2", "0", "0xc002", "ASSUMED_BAD", "0", "0", "2"]]
    assert lines[5:] == ["", "paths of card 1: none in use"]
