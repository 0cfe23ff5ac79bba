"""What tests share: where the executables are, which build they come from, how to run one; the book as a site.

FLASHSTEPS_BIN names the folder of step executables; without it, build/sim/bin.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the tests import the tools
from tools.mutate.rebuild import compiler_words

BIN = Path(os.environ.get("FLASHSTEPS_BIN", ROOT / "build" / "sim" / "bin"))
SCHEMA = json.loads((ROOT / "docs" / "result.schema.json").read_text())
# Those with variants: 00_first_kernel is plain CUDA.
STEPS = sorted(path.name for path in BIN.glob("[0-9][0-9]_*") if os.access(path, os.X_OK) and path.name[:2] != "00")


def read_report(path):
    """What --json wrote; it must be what the schema says."""
    report = json.loads(path.read_text())
    jsonschema.validate(report, SCHEMA, cls=jsonschema.Draft202012Validator)
    return report


def pytest_configure(config):
    config.addinivalue_line("markers", "long: what only `make test-all` runs")


def pytest_collection_modifyitems(items):
    """pytest skips a test whose list of parameters is empty; here that is a mistake: nothing would be tested. (But a handout, which has no
    solutions, skips their tests for a reason of its own.)"""
    for item in items:
        skipped = any(mark.args[0] for mark in item.iter_markers("skipif"))
        for mark in item.iter_markers("skip"):
            if "empty parameter set" in mark.kwargs.get("reason", "") and not skipped:
                raise pytest.UsageError(f"{item.nodeid}: {mark.kwargs['reason']}")


def cxx():
    """The build's C++ compiler, which is the one that a reader's machine has: tools/bootstrap installs no c++ and no gcc."""
    commands = json.loads((BIN.parent / "compile_commands.json").read_text())
    return next(compiler_words(entry["command"])[0] for entry in commands if entry["file"].endswith(".cpp"))


class Step:
    """One executable; calling it runs it and returns status, stdout and stderr."""

    def __init__(self, name, before=()):
        self.name = name
        self.before = before  # words of the command line before the executable: a program that runs it

    def __call__(self, *args, cwd=ROOT):
        command = [*self.before, BIN / self.name, *map(str, args)]
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)

    def ok(self, *args, **options):
        """The same where nothing may go wrong."""
        done = self(*args, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def report(self, path, *args):
        """Runs with --json; returns what it wrote."""
        self.ok(*args, "--json", path)
        return read_report(path)


def built(name):
    if name not in STEPS:
        pytest.skip(f"{BIN}/{name} is not built")
    return Step(name)


@pytest.fixture
def naive_mha():
    return built("01_naive_mha")


@pytest.fixture
def tiled_gemm():
    return built("02_tiled_gemm")


@pytest.fixture
def few_tokens():
    return built("08_few_tokens")


@pytest.fixture
def online_softmax():
    return built("03_online_softmax")


@pytest.fixture(scope="session")
def backend(tmp_path_factory):
    """sim or gpu: which build the executables come from."""
    if not STEPS:
        pytest.skip(f"{BIN} holds no steps")
    return Step(STEPS[0]).report(tmp_path_factory.mktemp("backend") / "report.json", "--no-check")["backend"]


@pytest.fixture
def sim(backend):
    if backend != "sim":
        pytest.skip("only the sim build")


@pytest.fixture
def gpu(backend):
    if backend != "gpu":
        pytest.skip("only the gpu build")


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the book as a site. Warnings are errors."""
    out = tmp_path_factory.mktemp("site")
    cache = tmp_path_factory.mktemp("cache")
    options = ["-q", "-n", "-W", "--keep-going", "-E", "-b", "html", "-d", cache]
    command = [sys.executable, "-m", "sphinx", *options, ROOT / "docs", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out
