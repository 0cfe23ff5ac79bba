"""No test is forgotten: each is run by exactly one entry of ctest, in its tier."""

import json
import re
import subprocess
import sys
from collections import Counter

import pytest
from conftest import BIN, ROOT


def of_tier(which):
    """The names of all tests of a tier: "tests/tools/test_parity.py::test_it[05_flash_v2]", …"""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", "-m", which, "tests"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


def chosen(name, words):
    """Does the -k of a command choose this test? It is a step's name, or “not (one or another)”."""
    if "-k" not in words:
        return True
    what = words[words.index("-k") + 1]
    others = re.fullmatch(r"not \((.+)\)", what)
    return not any(step in name for step in others[1].split(" or ")) if others else what in name


@pytest.fixture(scope="module")
def entries():
    done = subprocess.run(["ctest", "--show-only=json-v1"], cwd=BIN.parent, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["tests"]


@pytest.mark.parametrize("which", ["long", "not long"])
def test_every_pytest_is_of_exactly_one_entry(entries, which):
    names = of_tier(which)
    runs = Counter()
    for entry in entries:
        words = entry["command"]
        if "pytest" in words and words[words.index("-m", words.index("pytest")) + 1] == which:
            runs.update(name for name in names if name.split("::")[0] in words and chosen(name, words))
    assert len(names) > 10
    assert {name: runs[name] for name in names if runs[name] != 1} == {}


def test_the_entries_of_a_step_bear_its_name(entries):
    labels = {entry["name"]: {p["name"]: p["value"] for p in entry["properties"]}.get("LABELS", []) for entry in entries}
    for step in (path.parent.name for path in ROOT.glob("steps/*/step.cu")):
        of_step = {name for name in labels if step in name}
        assert of_step == {name for name, there in labels.items() if step in there}
        assert step in of_step and (f"exercises_{step}" in of_step) == (ROOT / "steps" / step / "exercises").is_dir()
    assert {name for name, there in labels.items() if "long" in there} == {name for name in labels if name.endswith("_long")}


@pytest.mark.parametrize(
    "row, saying", [("", ""), ("check 5", "'check' stands there twice"), ("new many", "the seconds of 'new' are 'many'")]
)
def test_the_costs_of_tests_have_one_row_a_name(tmp_path, row, saying):
    costs = (ROOT / "tests" / "costs.cmake").read_text()
    assert re.search(r"^  check +\d", costs, re.MULTILINE)
    (tmp_path / "costs.cmake").write_text("cmake_minimum_required(VERSION 3.25)\n" + costs.replace("set(seconds\n", f"set(seconds {row}\n"))
    done = subprocess.run(["cmake", "-P", tmp_path / "costs.cmake"], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (saying == "") and saying in done.stderr, done.stderr


def test_a_list_of_parameters_that_is_empty_is_an_error(tmp_path):
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text().replace("Path(__file__)", repr(ROOT / "tests" / "conftest.py").replace("Posix", "")))
    (tmp_path / "test_none.py").write_text("import pytest\n\n\n@pytest.mark.parametrize('x', [])\ndef test_it(x):\n    assert x\n")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 4 and "test_none.py::test_it" in done.stderr + done.stdout, done.stdout + done.stderr


def test_an_unknown_step_is_refused_by_name():
    done = subprocess.run(["make", "test", "STEP=99"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "there is no step 99; there are: 00_first_kernel 01_naive_mha " in done.stderr
