# SPDX-License-Identifier: BSD-2-Clause
"""The litex_sim front: impossible options are one sentence, and the card boots to its console line."""

import os
import signal
import subprocess
import time

import pytest

ROOT   = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TARGET = os.path.join(ROOT, "targets", "sim.py")
BANNER = "openrdma recovery firmware, policy mrc"

@pytest.mark.parametrize("options, status, sentence", [
    (["--planes", "7"],             2, "planes is 7, but a card has 1 to 4 planes"),
    (["--policy", "nonsense"],      2, "There is no policy 'nonsense'"),
    (["--cpu-type", "picorv32"],    1, "--cpu-type is picorv32, but the card sets it itself"),
])
def test_impossible_option_is_one_sentence(options, status, sentence):
    done = subprocess.run([TARGET, *options], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == status and sentence in done.stderr and len(done.stderr.strip().splitlines()) == 1

@pytest.mark.timeout(900)
@pytest.mark.xdist_group("litex_sim")
def test_card_boots_to_its_console_line(tmp_path):
    log = tmp_path/"console.log"
    with open(log, "wb") as output:
        process = subprocess.Popen([TARGET, "--non-interactive", "--preset", "tiny", "--opt-level", "O0",
            "--output-dir", str(tmp_path/"build")], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            cwd=tmp_path, start_new_session=True)
    try:
        end = time.monotonic() + 800
        while BANNER not in log.read_text(errors="replace"):
            assert process.poll() is None, f"the simulator ended:\n{log.read_text(errors='replace')[-3000:]}"
            assert time.monotonic() < end, f"no console line:\n{log.read_text(errors='replace')[-3000:]}"
            time.sleep(1)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
