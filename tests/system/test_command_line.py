# SPDX-License-Identifier: BSD-2-Clause
"""scripts/simulate as a user runs it: report, files, sentences and exit status."""

import json
import random
import subprocess
import sys

import pytest

from soc.sim import cli, verilator
from soc.sim.cluster import SimulationError
from soc.sim.model import ROOT
from tests.system.bench import Link, cluster, group

pytestmark = pytest.mark.timeout(600)

KEYS = {
    "ok": bool, "bytes": int, "seed": int, "cycles": int, "seconds_simulated": float, "goodput_gbps": float, "wire_limit_gbps": float,
    "timeouts": int, "flags_before_data": int, "qp_errors": list, "per_path": list, "policy": str, "packets": dict, "latency_us": dict,
    "pcie": dict, "wall": dict}
DATA = {"sent", "delivered", "lost", "corrupted", "duplicated", "reordered", "resent", "spurious"}

def files(folder):
    return sorted(p.name for p in folder.iterdir())

@group(1)
def test_a_file_goes_through_the_command(tmp_path):
    """The script itself, in a process of its own: one plane, all files that it can write."""
    source, out, report, pcap = (tmp_path/n for n in ("source", "out", "report.json", "frames.pcapng"))
    source.write_bytes(random.Random(1).randbytes(50_001))
    done = subprocess.run([f"{ROOT}/scripts/simulate", "--file", source, "--out", out, "--json", report, "--pcap", pcap, "--console",
        "--loss", "0.02", "--jitter", "1000", "--paths", "2", "--seed", "3"], capture_output=True, text=True, timeout=550, check=False)
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == source.read_bytes()
    assert "[card 0] openrdma recovery firmware" in done.stdout and "[card 1] openrdma recovery firmware" in done.stdout
    for word in ("bytes", "goodput", "latency", "data packets", "resends", "control packets", "PCIe control", "flags", "paths",
                 "wall time"):
        assert any(line.startswith(word) for line in done.stdout.splitlines()), word
    assert pcap.read_bytes()[:4] == b"\x0a\x0d\x0d\x0a"
    r = json.loads(report.read_text())
    for key, kind in KEYS.items():
        assert isinstance(r[key], kind), key
    assert DATA <= r["packets"]["data"].keys() and {"sent", "lost", "corrupted"} <= r["packets"]["control"].keys()
    assert {"p50", "p99", "max"} <= r["latency_us"].keys() and {"seconds", "cycles_per_second"} <= r["wall"].keys()
    assert {"control_tlps_per_transfer", "control_bytes_per_transfer"} <= r["pcie"].keys()
    assert all({"plane", "path", "packets", "lost"} <= p.keys() for p in r["per_path"]) and len(r["per_path"]) == 2
    assert r["bytes"] == 50_001 and r["seed"] == 3 and r["policy"] == "mrc" and 0 < r["goodput_gbps"] < r["wire_limit_gbps"] < 10

@group(1)
def test_an_empty_file_arrives(tmp_path):
    (tmp_path/"empty").touch()
    assert cli.main(["--file", str(tmp_path/"empty"), "--out", str(tmp_path/"out")]) == 0
    assert (tmp_path/"out").read_bytes() == b""

@group(2)
def test_a_dead_fabric_is_status_1_and_a_sentence(tmp_path, capsys):
    status = cli.main(["--size", "100", "--loss", "1", "--planes", "2", "--queue-pairs", "2", "--message", "50",
        "--json", str(tmp_path/"r.json")])
    out, err = capsys.readouterr()
    assert status == 1
    for qp in (0, 1):
        assert f"Queue pair {qp} of card 0 ended in error: retry budget used up." in err
    report = json.loads((tmp_path/"r.json").read_text())
    assert not report["ok"] and report["seconds_simulated"] < 0.01
    assert report["qp_errors"] == [{"node": 0, "qp": qp, "reason": "retry budget used up"} for qp in (0, 1)]

@group(1)
def test_a_policy_of_the_users_own_is_loaded(tmp_path):
    """A copy of the shipped policy under another name: the report names it."""
    policy = tmp_path/"my_policy.py"
    with open(f"{ROOT}/firmware/policies/mrc.py") as f:
        policy.write_text(f.read())
    status = cli.main(["--size", "20000", "--mtu", "1024", "--loss", "0.05", "--policy", str(policy), "--json", str(tmp_path/"r.json")])
    assert status == 0 and json.loads((tmp_path/"r.json").read_text())["policy"] == "my_policy.py"

@group(1)
def test_a_policy_outside_of_the_subset_is_refused_with_its_line(tmp_path, capsys):
    policy = tmp_path/"bad.py"
    policy.write_text("import os\n")
    assert cli.main(["--size", "10", "--policy", str(policy), "--json", str(tmp_path/"r.json")]) == 2
    err = capsys.readouterr().err
    assert "bad.py" in err and "Traceback" not in err and files(tmp_path) == ["bad.py"]

@pytest.mark.parametrize("arguments", [["--file", "missing"], ["--planes", "0"], ["--loss", "2"], ["--queue-pairs", "17"], ["--size", "x"],
    ["--size", str(1 << 30)]])
def test_what_cannot_be_is_one_sentence_and_nothing_written(arguments, tmp_path):
    """In a process of its own, so that nothing but the sentence can come out."""
    outputs = ["--json", "r.json", "--pcap", "p.pcapng", "--out", "o"]
    code = "import sys; from soc.sim.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", code, *arguments, *outputs], cwd=tmp_path, capture_output=True, text=True,
        timeout=60, check=False)
    assert done.returncode == 2 and done.stdout == "" and files(tmp_path) == []
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("simulate: ") and done.stderr.rstrip().endswith(".")

def test_a_missing_compiler_is_named_with_its_command(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(verilator.ToolError, match="g\\+\\+ is missing; install it with: apt-get install"):
        verilator.check_compiler()

@group(2)
def test_a_limit_says_what_waits_for_what():
    with cluster(seed=1, loss=1.0) as c:
        a, b = c.nodes
        link = Link(c, a, b)
        link.post()
        link.signal.target(1)
        for limits, words in ((dict(limit=20_000), "after 20000 cycles"), (dict(limit=10**9, wall=0.2), "s of wall time"),
                              (dict(limit=10**9, stall=30_000), "without progress")):
            with pytest.raises(SimulationError, match=f"{words}: 1 flags are below their target.*page 0 of card 0 has 1 tokens posted, "
                                                      "1 consumed, 0 completed"):
                c.run(**limits)
