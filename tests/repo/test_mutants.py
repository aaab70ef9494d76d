# SPDX-License-Identifier: BSD-2-Clause
"""The mutants fit the tree as it is, and their runner tells a caught fault from a card that does not build."""

import os
import subprocess

import pytest

from tests.mutants import MUTANTS
from tests.mutants import __main__ as program
from tests.mutants import run as runs
from tests.mutants.mutant import Mutant, Sources
from tests.mutants.verdict import kind_of
from tests.repo import style
from tests.repo.named import missing_test

# The tables ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_mutant_fits_its_file_and_its_tests_exist(mutant):
    text = style.read(mutant.file)
    assert mutant.apply(text) != text
    assert mutant.tests and not [m for m in map(missing_test, mutant.tests) if m]

def test_there_are_many_and_no_two_are_the_same():
    assert len(MUTANTS) >= 40
    assert len({m.name for m in MUTANTS}) == len({(m.file, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)

def test_a_mutant_that_fits_no_longer_is_a_sentence():
    mutant = Mutant("planted", "gateware/x.py", "a = 1", "a = 2", ("tests/x.py",))
    assert mutant.apply("a = 1\n") == "a = 2\n"
    for text, words in (("b = 1\n", "occurs 0 times"), ("a = 1\na = 1\n", "occurs 2 times")):
        with pytest.raises(ValueError, match=words):
            mutant.apply(text)
    with pytest.raises(ValueError, match="is no Python"):
        Mutant("planted", "gateware/x.py", "a = 1", "a = (", ("tests/x.py",)).apply("a = 1\n")

def test_a_result_holds_as_long_as_what_it_depends_on():
    mutant = Mutant("planted", "gateware/x.py", "a", "b", ("tests/gateware/test_x.py::test_a",))
    texts  = {"gateware/x.py": "from gateware import y\n", "gateware/y.py": "import os\n", "gateware/z.py": "",
        "tests/gateware/test_x.py": "from gateware.x import X\n", "tests/gateware/test_y.py": "",
        "soc/harness.h": "", "gateware/__init__.py": ""}
    key    = mutant.key(Sources(texts))
    for path in texts:
        same = mutant.key(Sources({**texts, path: texts[path] + "# changed"})) == key
        assert same == (path in ("gateware/z.py", "tests/gateware/test_y.py")), path

# The runner ---------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A tree with one block and one test of it."""
    folder = tmp_path_factory.mktemp("toy")
    for name in ("gateware", "tests"):
        (folder/name).mkdir()
        (folder/name/"__init__.py").write_text("")
    (folder/"tests"/"mutants").mkdir()
    (folder/"tests"/"mutants"/"__init__.py").write_text("")
    os.symlink(os.path.join(style.ROOT, "tests", "mutants", "verdict.py"), folder/"tests"/"mutants"/"verdict.py")
    (folder/"build").mkdir()
    (folder/"gateware"/"block.py").write_text("TABLE = {1: 1}\ndef double(x):\n    return 2*x\n")
    (folder/"tests"/"test_block.py").write_text(
        "from gateware.block import TABLE, double\ndef test_double():\n    assert double(TABLE[1]) == 2\n")
    return str(folder)

@pytest.mark.parametrize("old, new, verdict", [
    ("2*x", "3*x", runs.CAUGHT), ("2*x", "x + x", runs.SURVIVED), ("2*x", "2*y", runs.BROKEN), ("TABLE =", "TABLES =", runs.BROKEN)])
def test_only_a_check_of_a_test_catches(toy, old, new, verdict):
    mutant = Mutant("planted", "gateware/block.py", old, new, ("tests/test_block.py",))
    result = runs.run(toy, mutant)
    assert result.verdict == verdict, result
    with open(os.path.join(toy, "gateware", "block.py"), encoding="utf-8") as f:
        assert old in f.read(), "the fault is taken out again"

def test_what_cannot_be_built_is_no_check():
    class BuildError(AssertionError):
        pass
    block = "tests/gateware/test_x.py"
    assert kind_of(BuildError(), block) == "error" and kind_of(AssertionError(), block) == "check"
    assert kind_of(KeyError(), block) == "check" and kind_of(KeyError(), "gateware/x.py") == "error"
    assert kind_of(KeyError(), "tests/engines/build.py") == "error" and kind_of(TypeError(), block) == "error"

def test_a_copy_holds_what_git_knows_and_goes_away():
    with runs.tree_copy() as folder:
        assert os.path.isfile(os.path.join(folder, "gateware", "config.py")) and not os.path.exists(os.path.join(folder, ".git"))
    assert not os.path.exists(folder)

def test_results_are_kept(tmp_path):
    path  = str(tmp_path/"build"/"mutants.json")
    store = runs.Store(path)
    store.put("key", runs.Result("planted", runs.CAUGHT, "tests/x.py::test_a", 1.5))
    assert runs.Store(path).get("key") == runs.Result("planted", runs.CAUGHT, "tests/x.py::test_a", 1.5)
    other = runs.Store(path)                     # A second run beside the first.
    store.put("a", runs.Result("a", runs.CAUGHT, "", 1))
    other.put("b", runs.Result("b", runs.SURVIVED, "", 1))
    assert {"key", "a", "b"} == set(runs.Store(path).rows) and runs.Store(path).get("other") is None

# The command --------------------------------------------------------------------------------------

def test_a_survivor_is_status_1(monkeypatch, capsys):
    monkeypatch.setattr(program, "check", lambda mutants: None)
    for verdict, status in ((runs.CAUGHT, 0), (runs.SURVIVED, 1), (runs.BROKEN, 1)):
        results = {m.name: runs.Result(m.name, verdict, "", 0) for m in MUTANTS}
        monkeypatch.setattr(program, "execute", lambda *_, results=results: results)
        assert program.main([]) == status
    capsys.readouterr()

@pytest.mark.parametrize("arguments, sentence", [(["--only", "nonsense"], "There is no mutant nonsense"), (["-j", "0"], "-j is 0"),
    (["--nonsense"], "nrecognized arguments: --nonsense")])
def test_what_cannot_be_run_is_one_sentence_and_status_2(arguments, sentence, capsys):
    assert program.main(arguments) == 2
    error = capsys.readouterr().err
    assert sentence in error and len(error.strip().splitlines()) == 1

def test_list_shows_every_mutant():
    done = subprocess.run([os.path.join(style.ROOT, "scripts", "mutants"), "--list"], cwd=style.ROOT, capture_output=True, text=True,
        timeout=120, check=False)
    assert done.returncode == 0 and all(m.name in done.stdout for m in MUTANTS)
