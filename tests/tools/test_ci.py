"""CI's own scripts: what it may skip, and the machine that has nothing."""

import importlib.util
import re
import subprocess

import pytest
from conftest import ROOT

spec = importlib.util.spec_from_file_location("skips", ROOT / ".ci" / "skips.py")
skips = importlib.util.module_from_spec(spec)
spec.loader.exec_module(skips)

LISTED = "SKIPPED [46] tests/tools/test_flashsteps_torch.py: could not import 'torch': No module named 'torch'"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (LISTED, None),
        ("46 skipped in 0.1s", None),
        ("SKIPPED [1] tests/tools/test_mutate.py:765: build/sim/bin/01_naive_mha is not built", "skipped, and not in"),
        ("Test Skipped.", "skipped, and not in"),
        ("/bin/sh: 1: c++: not found", "a program is missing"),
        ("make: line 3: gcc: command not found", "a program is missing"),
        ("E   FileNotFoundError: [Errno 2] No such file or directory: 'gcc'", "a program is missing"),
        ("cannot read: No such file or directory: 'some/file.npy'", None),
    ],
)
def test_a_skip_that_is_not_listed_and_a_missing_program_are_found(line, found):
    faults = skips.faults(f"before\n{line}\nafter\n", skips.MAY_SKIP)
    assert [bool(fault.startswith(found or "")) for fault in faults] == ([True] if found else [])


def test_where_nothing_may_be_skipped_a_listed_skip_is_found_too():
    assert skips.faults(LISTED, [])


def test_what_bootstrap_prints_as_its_packages_is_what_it_asks_for():
    done = subprocess.run([ROOT / "tools" / "bootstrap", "--packages"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == re.search(r"^packages=\((.*?)\)", (ROOT / "tools" / "bootstrap").read_text(), re.DOTALL | re.MULTILINE)[1].split()
