# SPDX-License-Identifier: BSD-2-Clause
"""The soak on whole cards, short: what it promises holds, it goes on where it ended, and it notices faults."""

import json
import random

import pytest

from soc.sim import soak as soak_file
from soc.sim.soak import Mix, SoakError, lost, soak, text, total, verdict
from soc.sim.soak_round import run_round
from tests.system.bench import group

pytestmark = [group(4), pytest.mark.timeout(600)]

MIX = Mix(packets=1500, queue_pairs=4, trim=0.02, mark=0.05)

def test_a_short_soak_holds_and_a_second_call_goes_on(tmp_path):
    rounds, problems = soak(1, 3, MIX, str(tmp_path))
    assert problems == [] and len(rounds) == 1
    r = rounds[0]
    assert r["packets"] > 1200 and r["data"]["lost"] > 0 and r["data"]["trimmed"] > 0 and r["data"]["marked"] > 0
    more, problems = soak(r["packets"] + 1, 3, MIX, str(tmp_path))
    assert problems == [] and more[0] == r and len(more) == 2 and more[1]["seed"] != r["seed"]
    record = json.loads((tmp_path / "seed-3.json").read_text())
    assert record["total"] == total(more) and record["rounds"] == more
    assert any("unexplained" in line for line in text(more))

def test_a_round_follows_from_its_seed():
    first, second = (run_round(Mix(packets=300), 11) for _ in range(2))
    assert {**first, "wall": 0} == {**second, "wall": 0}

def test_a_record_of_another_mix_is_refused(tmp_path):
    (tmp_path / "seed-1.json").write_text(json.dumps({"version": 1, "seed": 1, "mix": {"loss": 0.5}, "rounds": []}))
    with pytest.raises(SoakError, match="another soak"):
        soak(10, 1, MIX, str(tmp_path))

def test_a_card_that_is_not_patient_is_noticed(monkeypatch):
    """A shorter timeout than the policy's promises timeouts that nothing lost explains."""
    from soc.sim.cluster import Cluster
    connect = Cluster.connect
    monkeypatch.setattr(Cluster, "connect", lambda self, a, b, **values: connect(self, a, b, timeout=2, **values))
    r = run_round(Mix(packets=300, loss=0, corrupt=0, trim=0, duplicate=0), 5)
    assert r["timeouts"] > 0 and r["unexplained"] > 0 and any("suspects" in p for p in r["problems"])

def test_wrong_bytes_and_early_flags_are_noticed(monkeypatch):
    from soc.sim import soak_round
    post = soak_round.Lane.post
    def spoil(lane):
        """A byte of the source changes behind the soak's back, in the first message that has one."""
        i = next(i for i, n in enumerate(lane.lengths) if n)
        at = lane.source + i*lane.stride
        lane.a.fill(at, bytes([lane.a.bytes_at(at, 1)[0] ^ random.Random(1).randrange(1, 256)]))
        post(lane)
    monkeypatch.setattr(soak_round.Lane, "post", spoil)
    r = run_round(Mix(packets=200, queue_pairs=1), 6)
    assert r["wrong_bytes"] == 2 and "2 bytes are wrong." in r["problems"]

def test_a_round_that_is_stopped_has_its_line(monkeypatch, tmp_path):
    """A card that breaks a rule, or a limit: recorded as what is wrong, and the next call goes on behind it."""
    from soc.sim.cluster import Cluster, SimulationError
    def stop(self, *arguments, **values):
        self.step(20_000)
        raise SimulationError("A card broke a rule: the sentence.")
    monkeypatch.setattr(Cluster, "run", stop)
    rounds, problems = soak(1, 8, MIX, str(tmp_path))
    assert len(rounds) == 1 and rounds[0]["packets"] > 0
    assert problems == [f"Round 0 (seed {rounds[0]['seed']}): A card broke a rule: the sentence."]
    monkeypatch.undo()
    more, _ = soak(rounds[0]["packets"] + 1, 8, MIX, str(tmp_path))
    assert more[0] == rounds[0] and len(more) == 2 and more[1]["problems"] == []

def test_the_verdict_counts_needless_resends():
    line = {"seed": 1, "problems": [], "packets": 1000, "bytes": 0, "messages": 0, "cycles": 0, "timeouts": 0, "unexplained": 0,
        "flags_early": 0, "wrong_bytes": 0, "wall": 0, "stalls": {}, "control": {"sent": 0},
        "data": {"lost": 500, "corrupted": 300, "trimmed": 200, "spurious": 10}}
    assert lost(line["data"]) == 1000 and verdict([line]) == []
    line["data"]["spurious"] = 11
    assert "11 packets were resent that had arrived" in verdict([line])[0]
    assert soak_file.FOLDER.endswith("soak")
