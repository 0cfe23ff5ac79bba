"""examples/training/train.py and benchmarks/training.py from outside: what they print and write, refuse, and claim. What they compute:
test_training.py."""

import json
import math
import sys

import pytest
from conftest import ROOT

sys.path[:0] = [str(ROOT / folder) for folder in ("examples/training", "benchmarks")]

import attentions
import block
import train
import training  # benchmarks/training.py
from attentions import InNumPy
from dropout import share_of_256

RESULTS = {machine: ROOT / "results" / machine / "training.json" for machine in ("h200", "sim")}


# ---- the command line ----


@pytest.mark.parametrize(
    "flags, saying",
    [
        ("--attention best", "invalid choice: 'best'"),
        ("--attention simulator --dtype fp8", "invalid choice: 'fp8'"),
        ("--dtype fp16", "'double' is in double precision"),
        ("--steps 0", "--steps: 0 is not 1 or more"),
        ("--steps x", "--steps"),
        ("--dropout 1", "--dropout: dropout is a probability"),
        ("--dropout -0.1", "--dropout"),
        ("--dropout nan", "not nan"),
        ("--dropout 0.001", "rounds to 0 of 256"),
        ("--dropout 0.999", "rounds to 256 of 256"),
        ("--json no/such/folder/x.json", "there is no folder"),
        ("--json .", "is a folder"),
        ("--unknown", "unrecognized"),
    ],
)
def test_wrong_flags_are_refused_by_name(flags, saying, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        train.main(flags.split())
    assert end.value.code == 2 and saying in capsys.readouterr().err


def test_what_is_missing_or_fails_ends_with_3(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(attentions, "BIN", tmp_path)
    assert train.main(["--attention", "simulator"]) == 3 and "run make sim first" in capsys.readouterr().err
    for name in ("05_flash_v2", "06_backward"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'no such thing' >&2; exit 2\n")
        (tmp_path / name).chmod(0o755)
    assert train.main(["--attention", "simulator"]) == 3
    assert "05_flash_v2 ended with 2: no such thing" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "torch_block", raising=False)
    assert train.main(["--attention", "torch"]) == 3 and "torch" in capsys.readouterr().err


def test_losses_are_printed_and_written(tmp_path, capsys, monkeypatch):
    assert train.main(["--steps", "2", "--dropout", "0.1", "--json", str(tmp_path / "x.json")]) == 0
    report = json.loads((tmp_path / "x.json").read_text())
    assert report["losses"] == list(block.train(InNumPy(of_256=26), 2)) and report["dropout_of_256"] == 26
    assert f"step   1  loss {report['losses'][1]:.6f}" in capsys.readouterr().out
    monkeypatch.setattr(train, "losses_of", lambda options: ("nowhere", [1.0, math.nan]))
    assert train.main(["--json", str(tmp_path / "y.json")]) == 1 and not (tmp_path / "y.json").exists()
    assert "the loss of step 1 is not finite" in capsys.readouterr().err


# ---- the benchmark ----


def runs(ours=(4, 3, 2), pytorchs=(4, 3, 2)):
    """What benchmarks/training.py measures, where the bf16 runs without dropout are these and all others alike."""
    given = {(training.OURS, "bf16", 0): ours, (training.PYTORCHS, "bf16", 0): pytorchs}
    return training.runs_of(lambda *run, steps=3: given.get(run[:3], (4, 3, 2)), 3)


@pytest.mark.parametrize(
    "ours, status, missed",
    [((4, 3, 2), 0, 0), ((4, 3 * 1.0009, 2), 0, 0), ((4, 3 * 0.9989, 2), 1, 1), ((4, 3, 2.001), 1, 1), ((4, math.nan, 2), 1, 1), ((4, 3, math.inf), 1, 2)],
)
def test_a_claim_that_does_not_hold_ends_with_1(ours, status, missed, tmp_path, capsys):
    assert training.finish(tmp_path / "x.json", runs(ours), {"machine": {}}) == status
    claims = json.loads((tmp_path / "x.json").read_text())["claims"]
    assert len(claims) == 16 and sum(not training.holds(claim) for claim in claims) == missed
    assert capsys.readouterr().out.count("MISSED") == missed


@pytest.mark.parametrize("machine", RESULTS)
def test_committed_claims_are_those_of_the_committed_losses_and_hold(machine):
    if not RESULTS[machine].exists():
        pytest.skip("not measured yet")
    report = json.loads(RESULTS[machine].read_text())
    assert report["claims"] == training.claims_of(report["runs"]) and all(map(training.holds, report["claims"]))
    assert {len(run["losses"]) for run in report["runs"]} == {block.STEPS}


@pytest.mark.parametrize(
    "flags, status, saying",
    [
        ("--build nowhere", 2, "nowhere/lib/libattention_06_backward.so: cannot open shared object file: No such file or directory; make gpu builds it"),
        ("--simulator --build nowhere", 2, "make sim builds it"),
        ("--json no/such/folder/x.json", 2, "there is no folder"),
    ],
)
def test_the_benchmark_refuses_by_name(flags, status, saying, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        training.main(flags.split())
    assert end.value.code == status and saying in capsys.readouterr().err


def test_without_pytorch_the_benchmark_ends_with_3(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(training, "libraries", lambda parser, options: ("nowhere", {"toolkit": "none"}))
    for variable in ("FLASHSTEPS_LIB", "FLASHSTEPS_SIM_LIB"):
        monkeypatch.setenv(variable, "before")
    for flags in ([], ["--simulator"]):
        with pytest.raises(SystemExit) as end:
            training.main(flags)
        assert end.value.code == 3 and "has no PyTorch" in capsys.readouterr().err


@pytest.mark.parametrize("share, n", [(0, 0), (0.1, 26), (0.5, 128), (0.996, 255), (0.002, 1)])
def test_a_share_is_the_nearest_of_256(share, n):
    assert share_of_256(share) == n
