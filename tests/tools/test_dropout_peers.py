"""benchmarks/dropout_peers.py without a GPU: its cells, one of them with made-up kernels, claims, the command line, the book's table. What
needs PyTorch is skipped without it.
"""

import argparse
import contextlib
import ctypes
import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import BIN, ROOT

sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "cli")]

import attention_peers
import backward_peers
import dropout_peers
import peers
from test_cli_backward import gradients
from test_cli_dropout import mask

from tools.book import tables
from tools.measure import gpu_check

PASSES = [(False, "forward"), (True, "backward")]


# ---- a cell, its kernels made up ----


def at(tensor, shape, dtype=np.float16):
    """The memory of a tensor of the C interface."""
    return np.frombuffer((ctypes.c_char * (int(np.prod(shape)) * np.dtype(dtype).itemsize)).from_address(tensor), dtype).reshape(shape)


class MadeUp:
    """A step on the host, by NumPy. `weights`: what dropout multiplies P by, of a problem."""

    def __init__(self, weights):
        self._weights = weights

    @contextlib.contextmanager
    def variant(self, name, problem, gradients_of=None):
        assert name == "tuned" and problem.dtype == b"fp16"
        shape = problem.batch, problem.heads, problem.seq_q, problem.dim

        def launch():
            q, k, v, o = (at(getattr(problem, each).data, shape) for each in "qkvo")
            lse = at(problem.lse, shape[:3], np.float32)
            d_o, *outputs = [at(getattr(gradients_of, each).data, shape) for each in ("d_o", "dq", "dk", "dv")] if gradients_of else [q]
            results = gradients(q, k, v, d_o, kept=self._weights(problem), causal=problem.causal == 1)
            if gradients_of:  # O and LSE are of a forward pass with the same mask
                np.testing.assert_allclose(o, results[0], atol=1e-2)
                np.testing.assert_allclose(lse, results[1], atol=1e-2)
            for output, result in zip(outputs or (o, lse), results[2:] if gradients_of else results):
                output[:] = result

        yield launch, 1.0


def honest(problem):
    if problem.dropout == 0:
        return 1
    return mask(problem.batch, problem.heads, problem.seq_q, problem.seq_k, problem.dropout, problem.dropout_seed) * (256 / (256 - problem.dropout))


def without(problem):
    return 1


def of_another_seed(problem):
    kept = mask(problem.batch, problem.heads, problem.seq_q, problem.seq_k, 26, problem.dropout_seed % 2**32)
    return kept * (256 / 230) if problem.dropout else 1


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(("weights", "verdict"), [(honest, "ok"), (without, "WRONG"), (of_another_seed, "WRONG")])
def test_a_cell_checks_ours_with_and_without_dropout_and_the_peers(backward, weights, verdict, monkeypatch):
    torch = pytest.importorskip("torch")
    randn = torch.randn
    monkeypatch.setattr(torch, "randn", lambda shape, device, dtype: randn(shape, dtype=dtype))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(peers, "TOKENS", 256)
    monkeypatch.setattr(peers, "WIDTH", 512)
    for module in (peers, dropout_peers):
        monkeypatch.setattr(module, "PEERS", {"FlashAttention-2": "MATH", "cuDNN": "CUDNN_ATTENTION"})

    def measure(contenders, *_):
        for contender in contenders:
            contender.burst_ms, contender.sustained_ms = [[0.5 if contender.name == dropout_peers.WITHOUT else 1.0]], 1.0

    monkeypatch.setattr(peers, "measure", measure)
    cell = dropout_peers.Cell(128, 64, True, backward=backward)
    options = argparse.Namespace(rounds=1, repetitions=1, pause_ms=0, sustained_ms=1)
    measured = dropout_peers.measure_cell(torch, {which: MadeUp(weights) for which in (False, True)}, cell, options, 1)
    assert {c["name"]: c["verdict"] for c in measured["contenders"]} == {"FlashAttention-2": "ok", "tuned": verdict, "tuned, without dropout": "ok"}
    assert list(measured["refused"]) == ["cuDNN"]  # on the host
    assert measured["problem"] == {"seq": 128, "dim": 64, "causal": True, "dtype": "fp16", "backward": backward, "batch": 2, "heads": 8}
    name = "backward" if backward else "forward"
    said = {claim["what"]: claim["value"] for claim in dropout_peers.claims({cell.name: measured})}
    assert said[f"{name}: time with dropout over time without, the most"] == 2


# ---- cells and claims ----


def test_cells_hold_what_is_claimed_of_them_and_the_operations_of_a_pass():
    cells = dropout_peers.all_cells()
    assert len({cell.name for cell in cells}) == len(cells) == 26
    assert {(c.backward, c.seq, c.dim, c.causal) for c in cells if c.dtype == "fp16"} == {
        (backward, seq, dim, causal) for backward, _ in PASSES for seq in (2048, 4096, 16384) for dim in (64, 128) for causal in (False, True)}  # fmt: skip
    assert [c.backward for c in cells if c.dtype == "bf16"] == [False, True]
    same = peers.Cell(4096, 64, True)
    for (backward, name), family in zip(PASSES, (attention_peers, backward_peers)):
        cell = dropout_peers.Cell(4096, 64, True, backward=backward)
        assert cell.name == f"{name}, d 64, 4096 tokens, causal, fp16" and cell.operations == family.operations(same)


def cell_of(backward, dim=64, dtype="fp16", refused=(), **of):
    """A cell as in the JSON: FlashAttention-2, cuDNN, or without dropout: how many times as fast ours with dropout is, in the median."""
    others = {"fa2": dropout_peers.FA2, "cudnn": "cuDNN", "without": dropout_peers.WITHOUT}
    of = {others[name]: {"median": ratio, "min": ratio - 0.125, "max": ratio + 0.125} for name, ratio in of.items()}
    entries = [(name, 300 / of[name]["median"], {}) for name in of] + [(dropout_peers.OURS, 300 if dtype == "fp16" else 294, of)]
    contenders = [{"name": n, "verdict": "ok", "tflops": {"median": t}, "of": o} for n, t, o in entries if n not in refused]
    return {"problem": {"seq": 4096, "dim": dim, "causal": False, "dtype": dtype, "backward": backward}, "contenders": contenders}


def test_claims_are_of_all_cells_in_fp16_and_of_each_pass_by_itself():
    cells = {
        "a": cell_of(False, fa2=2.0, cudnn=0.5, without=0.8),
        "b": cell_of(False, dim=128, fa2=1.125, without=0.5),  # here cuDNN refused
        "c": cell_of(False, dtype="bf16", fa2=0.1, without=0.1),
        "d": cell_of(True, fa2=1.25, cudnn=0.75, without=0.8),
        "e": cell_of(True, dim=128, fa2=9, without=9, refused=["tuned"]),  # and here ours
    }
    said = {claim["what"]: (claim["value"], claim["target"]) for claim in dropout_peers.claims(cells)}
    assert said == {
        "forward with dropout: the least of the speeds over FlashAttention-2's with dropout": (1.125, 1.25),
        "forward with dropout: geometric mean of these": (pytest.approx(1.5), None),
        "forward with dropout: geometric mean of the speed over cuDNN's with dropout": (pytest.approx(0.5), None),
        "forward: time with dropout over time without, geometric mean": (pytest.approx((1.25 * 2) ** 0.5), None),
        "forward: time with dropout over time without, the most": (2.0, None),
        "forward with dropout: bf16 over fp16": (0.98, None),
        "backward with dropout: the least of the speeds over FlashAttention-2's with dropout": (1.25, 1.15),
        "backward with dropout: geometric mean of these": (pytest.approx(1.25), None),
        "backward with dropout: geometric mean of the speed over cuDNN's with dropout": (pytest.approx(0.75), None),
        "backward: time with dropout over time without, geometric mean": (pytest.approx(1.25), None),
        "backward: time with dropout over time without, the most": (1.25, None),
    }
    assert dropout_peers.claims({}) == []


def test_it_is_measured_once_with_either_step():
    assert [step for step, programs in gpu_check.PEERS.items() if "dropout_peers" in programs] == ["05_flash_v2", "06_backward"]
    programs = {program for programs in gpu_check.PEERS.values() for program in programs}
    assert all((ROOT / "benchmarks" / f"{program}.py").is_file() and f"{program}.json" in gpu_check.__doc__ for program in programs)


# ---- the command line ----


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--cell", "d 96"], "there are:\nforward, d 64, 2048 tokens, fp16\n"),
        (["--rounds", "0"], "at least 1"),
        (["--sustained-ms", "0"], "at least 1"),
        (["--pause-ms", "-1"], "at least 0"),
        (["--variant", "scalar"], "unrecognized arguments"),
        (["--build", "nowhere"], "make gpu builds it"),
    ],
)
def test_bad_usage_is_refused_with_what_would_be_right(arguments, reason):
    command = [sys.executable, ROOT / "benchmarks" / "dropout_peers.py", "--build", BIN.parent, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr


def test_launches_without_a_pause_are_shorter_here_than_elsewhere_unless_asked_for():
    options = lambda arguments, **defaults: peers.parse_common(argparse.ArgumentParser(), arguments, dropout_peers.all_cells(), **defaults)[0]
    assert [options(a, **d).sustained_ms for a, d in [([], {}), ([], {"sustained_ms": 100}), (["--sustained-ms", "7"], {"sustained_ms": 100})]] == [200, 100, 7]


# ---- the book ----


def test_the_book_shows_speeds_and_what_dropout_costs_and_no_wrong_result(tmp_path):
    assert tables.make(tmp_path, "dropout", ["forward"]) == tables.make(tmp_path, "dropout_claims", []) == ""
    path = tmp_path / "results" / "h200" / "dropout_peers.json"
    path.parent.mkdir(parents=True)
    cells = {"forward, a cell": cell_of(False, fa2=1.5, without=0.8), "backward, a cell": cell_of(True, fa2=1.25, cudnn=0.75, without=0.5)}
    report = {"variants": [dropout_peers.OURS, dropout_peers.WITHOUT], "cells": cells, "claims": dropout_peers.claims(cells)}
    path.write_text(json.dumps(report))
    assert tables.make(tmp_path, "dropout", ["forward"]).splitlines()[0:-2:2] == [
        "| TFLOP/s with dropout | `tuned` | FA2 | cuDNN | memory-efficient | of FA2 | of cuDNN | time, of that without |",
        "| a cell | 300 | 200 | - | - | 1.50 (1.38–1.62) | - | 1.25 |",
    ]
    assert tables.make(tmp_path, "dropout", ["backward"]).splitlines()[2:-2] == ["| a cell | 300 | 240 | 400 | - | 1.25 (1.12–1.38) | 0.75 (0.62–0.88) | 2.00 |"]
    assert "over FlashAttention-2's with dropout | 1.25 | 1.500 |" in tables.make(tmp_path, "dropout_claims", [])
    with pytest.raises(tables.TableError, match="neither forward nor backward"):
        tables.make(tmp_path, "dropout", ["both"])
    cells["forward, a cell"]["contenders"][0]["verdict"] = "WRONG"
    path.write_text(json.dumps(report))
    with pytest.raises(tables.TableError, match="the result of FlashAttention-2 is wrong at forward, a cell"):
        tables.make(tmp_path, "dropout", ["forward"])
