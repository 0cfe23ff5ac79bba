"""The command line of matrix products from outside: right numbers, clear refusals, files. The judge is NumPy, in float64.

What all steps share (exit statuses, places to write to, the simulator's flags) is in test_cli.py.
"""

import re

import numpy as np
import pytest
from test_cli import refused, seeded

ANY_K = ("--variant", "any_k")  # takes every k and every stride

SHAPES = [(1, 1, 1), (1, 7, 9), (9, 1, 1000), (17, 16, 15), (65, 63, 8), (129, 40, 33), (3, 257, 100), (128, 128, 64)]


def inputs(batch, m, n, k, batch_a=None, dtype=np.float16):
    random = np.random.default_rng([batch, m, n, k])
    a = random.standard_normal((batch if batch_a is None else batch_a, m, k))
    return a.astype(dtype), (random.standard_normal((batch, n, k)) / np.sqrt(k)).astype(dtype)


def save(folder, a, b):
    folder.mkdir(exist_ok=True)
    np.save(folder / "a.npy", a)
    np.save(folder / "b.npy", b)
    return folder


def product(a, b):
    return np.asarray(a, np.float64) @ np.asarray(b, np.float64).swapaxes(-1, -2)


def bf16(x):
    """Rounded to nearest, ties to even, as float32."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def assert_right(file, a, b, relative=2.0**-9):
    """Up to what rounding C to its dtype may do, and a little more for the sums."""
    c, expected = np.load(file), product(a, b)
    assert c.shape == (max(a.shape[0], b.shape[0]), a.shape[-2], b.shape[-2])
    np.testing.assert_allclose(c, expected, rtol=relative, atol=1e-4)
    return c


# ---- right numbers ----


@pytest.mark.parametrize("m, n, k", SHAPES)
def test_products_agree_with_numpy(tiled_gemm, tmp_path, m, n, k):
    a, b = inputs(1, m, n, k)
    save(tmp_path / "in", a, b)
    tiled_gemm.ok("--input", tmp_path / "in", "--output", tmp_path / "out", "--no-check", *ANY_K)
    assert assert_right(tmp_path / "out" / "c.npy", a, b).dtype == np.float16


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_every_variant_writes_a_folder_of_its_own(tiled_gemm, tmp_path, dtype):
    a, b = inputs(2, 37, 53, 40)
    save(tmp_path / "in", a, b)
    flags = ("--dtype", dtype, "--lda", 48, "--ldb", 64, "--ldc", 56)
    report = tiled_gemm.report(
        tmp_path / "r.json", "--input", tmp_path / "in", "--output", tmp_path / "out", "--variant", "all", *flags
    )
    variants = [result["variant"] for result in report["results"]]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(variants)
    if dtype == "bf16":
        a, b = bf16(a), bf16(b)
    for variant in variants:
        c = assert_right(tmp_path / "out" / variant / "c.npy", a, b, 2.0**-7 if dtype == "bf16" else 2.0**-9)
        assert c.dtype == (np.float16 if dtype == "fp16" else np.float32)
        if dtype == "bf16":
            assert (c == bf16(c)).all()


@pytest.mark.parametrize("flat", [True, False])
def test_one_a_may_serve_the_whole_batch(tiled_gemm, tmp_path, flat):
    a, b = inputs(3, 20, 33, 24, batch_a=1)
    save(tmp_path / "in", a[0] if flat else a, b)
    report = tiled_gemm.report(tmp_path / "r.json", "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert report["results"][0]["problem"]["batch_a"] == 1
    assert_right(tmp_path / "out" / "c.npy", a, b)


def test_plain_matrices_are_a_batch_of_one(tiled_gemm, tmp_path):
    a, b = inputs(1, 20, 33, 24, dtype=np.float32)
    save(tmp_path / "in", a[0], b[0])
    tiled_gemm.ok("--input", tmp_path / "in", "--output", tmp_path / "out", "--dtype", "fp16")
    assert_right(tmp_path / "out" / "c.npy", a.astype(np.float16), b.astype(np.float16))


@pytest.mark.parametrize("batch_a", [1, 3])
def test_seeded_inputs_are_the_documented_ones(tiled_gemm, tmp_path, batch_a):
    m, n, k = 20, 30, 16
    tiled_gemm.ok("--batch", 3, "--batch-a", batch_a, "--m", m, "--n", n, "--k", k, "--seed", 5, "--output", tmp_path / "out")
    root = np.sqrt(np.float32(k))
    a = seeded(5, 0, (batch_a, m, k)) + np.float32(0.5)
    b = (seeded(5, 1, (3, n, k)) + 2 / root) / root
    assert_right(tmp_path / "out" / "c.npy", a.astype(np.float16), b.astype(np.float16))


def test_defaults_are_printed_and_follow_what_is_given(tiled_gemm):
    text = "batch 4, A shared, m 6, n 10, k 16, lda 24, ldb 16, ldc 10, bf16, seed 1"
    flags = ("--batch", 4, "--batch-a", 1, "--m", 6, "--n", 10, "--k", 16, "--lda", 24, "--dtype", "bf16")
    assert text in tiled_gemm.ok(*flags).stdout
    assert text in tiled_gemm.ok(*flags, "--list").stdout
    assert "batch 4, m 6," in tiled_gemm.ok("--batch", 4, "--m", 6).stdout


def test_nan_and_infinity_stay_in_their_row_and_column(tiled_gemm, tmp_path):
    a, b = inputs(2, 20, 30, 16)
    clean = product(a, b)
    a[0, 3, 15], b[1, 29, 0] = np.nan, np.inf
    save(tmp_path / "in", a, b)
    tiled_gemm.ok("--input", tmp_path / "in", "--output", tmp_path / "out", "--variant", "all")
    touched = np.zeros(clean.shape, bool)
    touched[0, 3], touched[1, :, 29] = True, True
    for variant in (tmp_path / "out").iterdir():
        c = np.load(variant / "c.npy")
        assert (np.isfinite(c) == ~touched).all()
        np.testing.assert_allclose(c[~touched], clean[~touched], rtol=2.0**-9, atol=1e-4)


# ---- refusals ----


@pytest.mark.parametrize(
    "flags, saying",
    [
        ("--m 0", "--m: '0'"),
        ("--n -3", "--n: '-3'"),
        ("--k 2.5", "--k: '2.5'"),
        ("--m 2147483648", "--m"),
        ("--lda 0", "--lda: '0'"),
        ("--k 64 --lda 63", "lda is 63; it must be k, 64, or more"),
        ("--k 64 --ldb 56", "ldb is 56"),
        ("--n 64 --ldc 1", "ldc is 1"),
        ("--batch 4 --batch-a 2", "batch-a is 2; it must be 1 (A is shared) or batch, 4"),
        ("--batch-a 2", "batch-a is 2"),
        ("--batch 60000 --m 1000000000 --k 1000000000", "the problem is too large: batch-a · m · lda is 6e+22"),
        ("--dtype fp64", "fp32, fp16 or bf16"),
        ("--dtype fp32", "does not support fp32"),
        ("--variant best", "'best' is unknown"),
        ("--variant all --batch 65536 --m 1 --n 1 --k 8", "no variant supports this"),
        ("--experts experts.npy", "--experts"),
        ("--heads 3", "--heads"),
        ("--causal", "--causal"),
        ("stray", "stray"),
    ],
)
def test_bad_usage_is_refused(tiled_gemm, tmp_path, flags, saying):
    files = ("--output", tmp_path / "out", "--json", tmp_path / "out.json")
    refused(tiled_gemm, *flags.split(), *files, saying=saying, written=tmp_path / "out")
    assert not (tmp_path / "out.json").exists()


def test_a_variant_that_needs_aligned_rows_says_so(tiled_gemm, tmp_path):
    for flags in (["--k", 41], ["--k", 40, "--lda", 41], ["--k", 40, "--ldb", 44]):
        message = refused(tiled_gemm, *flags, "--variant", "tuned", saying=f"does not support {flags[-2][2:]} {flags[-1]}")
        assert "k a multiple of 8; lda and ldb multiples of 8" in message
    report = tiled_gemm.report(tmp_path / "r.json", "--m", 9, "--n", 9, "--k", 41, "--variant", "all")
    skipped = [skip["variant"] for skip in report["skipped"]]
    assert "tuned" in skipped and all("k 41" in skip["reason"] for skip in report["skipped"])
    assert not set(skipped) & {result["variant"] for result in report["results"]}


@pytest.mark.parametrize(
    "name, array, saying",
    [
        ("a", np.ones((4, 2, 5, 8), np.float16), "[batch, m, k] or [m, k]"),
        ("b", np.ones(8, np.float16), "[batch, n, k] or [n, k]"),
        ("a", np.ones((2, 5, 8), np.float32), "one type"),
        ("a", np.ones((2, 5, 16), np.float16), "k must be equal"),
        ("a", np.ones((3, 5, 8), np.float16), "batch too unless A's is 1"),
        ("b", np.ones((5, 8), np.float16), "batch too unless A's is 1"),
        ("a", np.ones((2, 0, 8), np.float16), "dimension 0"),
        ("b", np.ones((2, 5, 8), np.int32), "'<i4'"),
        ("b", np.asfortranarray(np.ones((2, 5, 8), np.float16)), "Fortran"),
    ],
)
def test_an_array_that_does_not_fit_is_refused(tiled_gemm, tmp_path, name, array, saying):
    folder = save(tmp_path / "in", *inputs(2, 5, 6, 8))
    np.save(folder / f"{name}.npy", array)
    refused(tiled_gemm, "--input", folder, "--output", tmp_path / "out", saying=saying, written=tmp_path / "out")


def test_missing_files_are_named(tiled_gemm, tmp_path):
    refused(tiled_gemm, "--input", tmp_path, saying="a.npy: no such file")
    np.save(tmp_path / "a.npy", np.ones((4, 8), np.float16))
    refused(tiled_gemm, "--input", tmp_path, saying="b.npy: no such file")


@pytest.mark.parametrize("flag, value", [("batch", 3), ("batch-a", 1), ("m", 8), ("n", 8), ("k", 16), ("seed", 1)])
def test_a_flag_that_contradicts_the_input_files_is_refused(tiled_gemm, tmp_path, flag, value):
    folder = save(tmp_path / "in", *inputs(2, 5, 6, 8))
    message = refused(tiled_gemm, "--input", folder, f"--{flag}", value, "--output", tmp_path / "out", written=tmp_path / "out")
    assert f"--{flag}" in message and "contradicts" in message


def test_flags_that_agree_with_the_input_files_are_accepted(tiled_gemm, tmp_path):
    folder = save(tmp_path / "in", *inputs(2, 5, 6, 8))
    agreeing = ("--batch", 2, "--batch-a", 2, "--m", 5, "--n", 6, "--k", 8, "--lda", 16)
    tiled_gemm.ok("--input", folder, *agreeing)


def test_a_problem_beyond_the_memory_ends_with_3_and_says_how_much_there_is(tiled_gemm, tmp_path):
    files = ("--output", tmp_path / "out", "--json", tmp_path / "out.json")
    large = ("--m", 1000000, "--n", 1000000, "--k", 8)
    message = refused(tiled_gemm, *large, *files, status=3, saying="out of device memory", written=tmp_path / "out")
    assert "'c'" in message and len(re.findall(r"\d+ MB", message)) >= 2


def test_a_product_beyond_fp16_is_infinite_and_that_is_right(tiled_gemm, tmp_path):
    a, b = inputs(1, 5, 6, 8)
    save(tmp_path / "in", 60000 + 0 * a, -60000 + 0 * b)
    tiled_gemm.ok("--input", tmp_path / "in", "--output", tmp_path / "out")
    assert (np.load(tmp_path / "out" / "c.npy") == -np.inf).all()


# ---- JSON ----


def test_the_report_says_what_was_computed(tiled_gemm, tmp_path):
    shape = ("--batch", 2, "--m", 12, "--n", 15, "--k", 16, "--ldc", 24, "--seed", 9)
    report = tiled_gemm.report(tmp_path / "report.json", *shape, "--variant", "all")
    assert report["skipped"] == []
    for result in report["results"]:
        assert result["input"] == {"seed": 9}
        assert result["problem"] == {
            "family": "gemm", "batch": 2, "batch_a": 2, "m": 12, "n": 15, "k": 16, "lda": 16, "ldb": 16, "ldc": 24,
            "dtype": "fp16",
        }  # fmt: skip
        (tensor,) = result["verdict"]["tensors"]
        assert tensor["name"] == "C" and tensor["rows_checked"] == 2 * 12
        assert result["verdict"]["deterministic"] and result["verdict"]["guards_intact"]
        assert sum(kernel["flops"] for kernel in result["kernels"]) == 2 * 2 * 12 * 15 * 16


def test_no_schedule_changes_a_bit_of_the_product(tiled_gemm, tmp_path, sim):
    shape = ("--batch", 2, "--m", 41, "--n", 57, "--k", 72, "--variant", "all")
    schedules = [[], ["--sim-workers", 1], ["--sim-seed", 2], ["--sim-async", "eager"], ["--sim-async", "random"]]
    results = []
    for n, schedule in enumerate(schedules):
        tiled_gemm.ok(*shape, *schedule, "--output", tmp_path / str(n))
        results.append({path.parent.name: path.read_bytes() for path in (tmp_path / str(n)).glob("*/c.npy")})
    assert len(results[0]) > 1
    assert all(result == results[0] for result in results[1:])
