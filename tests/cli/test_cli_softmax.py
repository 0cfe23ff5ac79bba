"""The command line of row softmaxes from outside: right numbers, clear refusals, files. The judge is NumPy, in float64.

What all steps share (exit statuses, places to write to, the simulator's flags) is in test_cli.py.
"""

import json
import re

import numpy as np
import pytest
from conftest import BIN, ROOT, read_report
from test_cli import refused, seeded

from tools.learn import running_softmax

SHAPES = [(1, 1), (3, 2), (17, 33), (129, 65), (5, 1000), (2, 4097), (1, 40000)]


def scores(rows, cols, dtype=np.float16):
    return np.random.default_rng([rows, cols]).standard_normal((rows, cols)).astype(dtype)


def save(folder, x):
    folder.mkdir(exist_ok=True)
    np.save(folder / "x.npy", x)
    return folder


def softmax(x):
    x = np.asarray(x, np.float64)
    largest = x.max(axis=-1, keepdims=True)
    p = np.exp(x - np.where(np.isfinite(largest), largest, 0))
    total = p.sum(axis=-1, keepdims=True)
    return np.divide(p, total, out=np.zeros_like(p), where=total != 0)


def assert_right(file, x, relative):
    """Up to what rounding y may do, relative to the largest of its row."""
    y, expected = np.load(file), softmax(x)
    assert y.shape == x.shape
    assert (np.abs(y - expected) <= relative * expected.max(axis=-1, keepdims=True) + 2.0**-24).all()
    return y


# ---- right numbers ----


@pytest.mark.parametrize("rows, cols", SHAPES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_every_variant_agrees_with_numpy(online_softmax, tmp_path, rows, cols, dtype):
    x = scores(rows, cols, dtype)
    save(tmp_path / "in", x)
    name = "fp16" if dtype == np.float16 else "fp32"
    flags = ("--input", tmp_path / "in", "--output", tmp_path / "out", "--dtype", name, "--no-check", "--variant", "all")
    report = online_softmax.report(tmp_path / "r.json", *flags)
    variants = [result["variant"] for result in report["results"]]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(variants)
    for variant in variants:
        y = assert_right(tmp_path / "out" / variant / "y.npy", x, 2.0**-10 if dtype == np.float16 else 1e-5)
        assert y.dtype == dtype


@pytest.mark.parametrize("ldx, ldy", [(207, 207), (215, 207), (208, 211)])
def test_padding_between_rows_changes_nothing(online_softmax, tmp_path, ldx, ldy):
    x = scores(6, 207)
    save(tmp_path / "in", x)
    flags = ("--input", tmp_path / "in", "--ldx", ldx, "--ldy", ldy, "--variant", "all", "--output", tmp_path / "out")
    online_softmax.ok(*flags)
    for folder in (tmp_path / "out").iterdir():
        assert_right(folder / "y.npy", x, 2.0**-10)


def test_values_are_rounded_to_the_dtype_first(online_softmax, tmp_path):
    x = scores(4, 9, np.float32)
    save(tmp_path / "in", x)
    online_softmax.ok("--input", tmp_path / "in", "--dtype", "fp16", "--output", tmp_path / "out")
    assert assert_right(tmp_path / "out" / "y.npy", x.astype(np.float16), 2.0**-10).dtype == np.float16


def test_seeded_inputs_are_the_documented_ones(online_softmax, tmp_path):
    online_softmax.ok("--rows", 7, "--cols", 30, "--dtype", "fp32", "--seed", 5, "--output", tmp_path / "out")
    assert_right(tmp_path / "out" / "y.npy", seeded(5, 0, (7, 30)), 1e-5)


def test_defaults_are_printed_and_follow_what_is_given(online_softmax):
    text = "rows 6, cols 10, ldx 12, ldy 10, fp32, seed 1"
    flags = ("--rows", 6, "--cols", 10, "--ldx", 12, "--dtype", "fp32")
    assert text in online_softmax.ok(*flags).stdout
    assert text in online_softmax.ok(*flags, "--list").stdout


def test_nan_and_infinity_stay_in_their_row_and_masked_rows_are_zero(online_softmax, tmp_path):
    x = scores(9, 40)
    clean = softmax(x)
    x[2, 7], x[4, 39], x[6], x[7, :20] = np.nan, np.inf, -np.inf, -np.inf
    save(tmp_path / "in", x)
    online_softmax.ok("--input", tmp_path / "in", "--output", tmp_path / "out", "--variant", "all")
    untouched = [0, 1, 3, 5, 8]
    for folder in (tmp_path / "out").iterdir():
        y = np.load(folder / "y.npy")
        assert np.isnan(y[[2, 4]]).all()
        assert (y[6] == 0).all() and (y[7, :20] == 0).all()
        np.testing.assert_allclose(y[7], softmax(x[7:8])[0], rtol=2.0**-9, atol=1e-6)
        np.testing.assert_allclose(y[untouched], clean[untouched], rtol=2.0**-9, atol=1e-6)


# ---- refusals ----


@pytest.mark.parametrize(
    "flags, saying",
    [
        ("--rows 0", "--rows: '0'"),
        ("--cols -3", "--cols: '-3'"),
        ("--cols 2.5", "--cols: '2.5'"),
        ("--rows 2147483648", "--rows"),
        ("--rows 2000000000", "it must be at most 1073741824"),
        ("--cols 64 --ldx 63", "ldx is 63; it must be cols, 64, or more"),
        ("--cols 64 --ldy 1", "ldy is 1"),
        ("--rows 1000000000 --cols 1000000000", "the problem is too large: rows · ldx is 1e+18"),
        ("--dtype fp64", "fp32, fp16 or bf16"),
        ("--dtype bf16", "does not support bf16; it supports fp32, fp16; any rows; any cols; any strides"),
        ("--dtype bf16 --variant all", "no variant supports this"),
        ("--variant best", "'best' is unknown"),
        ("--m 3", "--m"),
        ("stray", "stray"),
    ],
)
def test_bad_usage_is_refused(online_softmax, tmp_path, flags, saying):
    files = ("--output", tmp_path / "out", "--json", tmp_path / "out.json")
    refused(online_softmax, *flags.split(), *files, saying=saying, written=tmp_path / "out")
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    "array, saying",
    [
        (np.ones((2, 3, 4), np.float16), "it must be [rows, cols]"),
        (np.ones(8, np.float16), "it must be [rows, cols]"),
        (np.ones((0, 8), np.float16), "dimension 0"),
        (np.ones((5, 8), np.int32), "'<i4'"),
        (np.asfortranarray(np.ones((5, 8), np.float16)), "Fortran"),
    ],
)
def test_an_array_that_does_not_fit_is_refused(online_softmax, tmp_path, array, saying):
    folder = save(tmp_path / "in", array)
    refused(online_softmax, "--input", folder, "--output", tmp_path / "out", saying=saying, written=tmp_path / "out")


def test_a_missing_file_is_named(online_softmax, tmp_path):
    refused(online_softmax, "--input", tmp_path, saying="x.npy: no such file")


@pytest.mark.parametrize("flag, value", [("rows", 4), ("cols", 8), ("seed", 1)])
def test_a_flag_that_contradicts_the_input_file_is_refused(online_softmax, tmp_path, flag, value):
    folder = save(tmp_path / "in", scores(5, 9))
    message = refused(online_softmax, "--input", folder, f"--{flag}", value, "--output", tmp_path / "out", written=tmp_path / "out")
    assert f"--{flag}" in message and "contradicts" in message


def test_flags_that_agree_with_the_input_file_are_accepted(online_softmax, tmp_path):
    online_softmax.ok("--input", save(tmp_path / "in", scores(5, 9)), "--rows", 5, "--cols", 9, "--ldy", 16)


def test_a_problem_beyond_the_memory_ends_with_3_and_says_how_much_there_is(online_softmax, tmp_path):
    files = ("--output", tmp_path / "out", "--json", tmp_path / "out.json")
    large = ("--rows", 1000000, "--cols", 1000000)
    message = refused(online_softmax, *large, *files, status=3, saying="out of device memory", written=tmp_path / "out")
    assert "'x'" in message and len(re.findall(r"\d+ MB", message)) >= 2


# ---- JSON ----


def test_the_report_says_what_was_computed(online_softmax, tmp_path):
    shape = ("--rows", 12, "--cols", 15, "--ldx", 24, "--seed", 9)
    report = online_softmax.report(tmp_path / "report.json", *shape, "--variant", "all")
    assert report["skipped"] == []
    for result in report["results"]:
        assert result["input"] == {"seed": 9}
        assert result["problem"] == {"family": "softmax", "rows": 12, "cols": 15, "ldx": 24, "ldy": 15, "dtype": "fp16"}
        (tensor,) = result["verdict"]["tensors"]
        assert tensor["name"] == "y" and tensor["rows_checked"] == 12
        assert result["verdict"]["deterministic"] and result["verdict"]["guards_intact"]
        assert sum(kernel["flops"] for kernel in result["kernels"]) == pytest.approx(5 * 12 * 15)


def test_the_bytes_of_the_variants_are_those_of_the_book(online_softmax, tmp_path):
    report = online_softmax.report(tmp_path / "r.json", "--rows", 8, "--cols", 4096, "--variant", "all", "--no-check")
    once = 8 * 4096 * 2
    transfers = {
        result["variant"]: sum(kernel["bytes_read"] + kernel["bytes_written"] for kernel in result["kernels"]) / once
        for result in report["results"]
    }
    expected = {"three_pass": 4, "online": 3, "warp_per_row": 3, "block_per_row": 3, "vectorised": 2, "split_rows": 3}
    expected |= {"wide_loads": 3, "held_parts": 2, "messages": 2, "as_they_come": 2, "in_shared": 2, "in_turns": 2, "tuned": 2}
    assert {variant: round(moved, 2) for variant, moved in transfers.items()} == expected


def test_no_schedule_changes_a_bit_of_the_result(online_softmax, tmp_path, sim):
    shape = ("--rows", 5, "--cols", 34567, "--variant", "all")
    schedules = [[], ["--sim-workers", 1], ["--sim-seed", 2], ["--sim-async", "eager"], ["--sim-async", "random"]]
    results = []
    for n, schedule in enumerate(schedules):
        online_softmax.ok(*shape, *schedule, "--no-check", "--output", tmp_path / str(n))
        results.append({path.parent.name: path.read_bytes() for path in (tmp_path / str(n)).glob("*/y.npy")})
    assert len(results[0]) > 1
    assert all(result == results[0] for result in results[1:])


def test_a_score_beyond_the_dtype_is_an_infinity_and_its_row_is_nan(online_softmax, tmp_path):
    x = np.zeros((2, 5), np.float32)
    x[0, 0] = 1e6
    save(tmp_path / "in", x)
    online_softmax.ok("--input", tmp_path / "in", "--dtype", "fp16", "--output", tmp_path / "out", "--json", tmp_path / "r.json")
    (tensor,) = read_report(tmp_path / "r.json")["results"][0]["verdict"]["tensors"]
    assert tensor["rows_exempt"] == 0 and tensor["rows_checked"] == 2
    y = np.load(tmp_path / "out" / "y.npy")
    assert np.isnan(y[0]).all() and not np.isnan(y[1]).any()


# ---- the book's picture ----


def test_the_committed_row_is_what_the_step_computes_and_what_a_running_softmax_is(tmp_path, online_softmax, sim):
    running_softmax.write(tmp_path, BIN.parent)
    (made,) = tmp_path.iterdir()
    row, committed = (json.loads(path.read_text()) for path in (made, ROOT / "results" / "sim" / made.name))
    assert {name: row[name] for name in ("head", "query", "variant")} == {name: committed[name] for name in ("head", "query", "variant")}
    for name in ("scores", "m", "l"):
        np.testing.assert_allclose(row[name], committed[name], rtol=1e-3, atol=1e-3)
    scores = np.array(committed["scores"])
    m = np.maximum.accumulate(scores)
    np.testing.assert_allclose(committed["m"], m, atol=1e-4)
    l = [np.exp(scores[: j + 1] - m[j]).sum() for j in range(scores.size)]
    np.testing.assert_allclose(committed["l"], l, rtol=1e-3)
