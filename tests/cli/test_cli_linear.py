"""The command line of linear layers from outside: right numbers, clear refusals, files. The judge is NumPy, in float64.

What all steps share (exit statuses, places to write to, the simulator's flags) is in test_cli.py.
"""

from math import erf

import numpy as np
import pytest
from test_cli import refused, seeded
from test_cli_gemm import bf16

ANY_ROWS = ("--variant", "warp_per_row")  # takes every k and every stride
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def inputs(m, n, k, batch=(), weight_batch=(), dtype=np.float16):
    """Tokens, weights and a bias."""
    random = np.random.default_rng([m, n, k, *batch])
    a, b = (random.standard_normal((*batch, m, k)), random.standard_normal((*weight_batch, n, k)) / np.sqrt(k))
    return (a.astype(dtype), b.astype(np.float16), random.standard_normal((*weight_batch, n)).astype(np.float16))


def save(folder, a, b, bias=None):
    folder.mkdir(exist_ok=True)
    for name, array in {"a": a, "b": b, "bias": bias}.items():
        if array is not None:
            np.save(folder / f"{name}.npy", array)
    return folder


def layer(a, b, bias=0.0, activation="none"):
    product = np.asarray(a, np.float64) @ np.asarray(b, np.float64).swapaxes(-1, -2)
    return ACTIVATIONS[activation](product + np.asarray(bias, np.float64)[..., None, :] if np.ndim(bias) else product)


def assert_right(file, expected, relative=2.0**-9):
    """Up to what rounding C to its type may do, and a little more for the sums."""
    c = np.load(file)
    np.testing.assert_allclose(c.reshape(expected.shape), expected, rtol=relative, atol=1e-4)
    return c


# ---- right numbers ----


@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (1, 7, 9), (9, 1, 1000), (16, 16, 15), (5, 65, 8), (3, 257, 100)])
def test_layers_agree_with_numpy(few_tokens, tmp_path, m, n, k):
    a, b, _ = inputs(m, n, k)
    save(tmp_path / "in", a, b)
    few_tokens.ok("--input", tmp_path / "in", "--output", tmp_path / "out", "--no-check", *ANY_ROWS)
    c = assert_right(tmp_path / "out" / "c.npy", layer(a, b))
    assert c.shape == (1, 1, m, n) and c.dtype == np.float16


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_bias_activation_and_the_types_of_tokens_and_of_c(few_tokens, tmp_path, activation):
    a, b, bias = inputs(3, 40, 24, dtype=np.float32)
    save(tmp_path / "in", a, b, bias)
    flags = ("--dtype", "bf16", "--dtype-a", "fp32", "--dtype-c", "fp32", "--activation", activation, "--lda", 32, "--ldb", 40, "--ldc", 41)
    report = few_tokens.report(tmp_path / "r.json", "--input", tmp_path / "in", "--output", tmp_path / "out", "--variant", "all", *flags)
    problem = report["results"][0]["problem"]
    assert problem["bias"] and problem["activation"] == activation and (problem["dtype_a"], problem["dtype_c"]) == ("fp32", "fp32")
    for result in report["results"]:  # fp32 tokens are rounded to the weights' type
        c = assert_right(tmp_path / "out" / result["variant"] / "c.npy", layer(bf16(a), bf16(b), bf16(bias), activation), 1e-5)
        assert c.dtype == np.float32


def test_entries_of_tokens_share_weights_and_their_bias(few_tokens, tmp_path):
    a, b, bias = inputs(2, 11, 16, batch=(4, 6), weight_batch=(2, 3))
    save(tmp_path / "in", a, b, bias)
    few_tokens.ok("--input", tmp_path / "in", "--output", tmp_path / "out")
    of_entry = lambda array: array.repeat(2, axis=0).repeat(2, axis=1)
    assert_right(tmp_path / "out" / "c.npy", layer(a, of_entry(b), of_entry(bias)))


def test_seeded_inputs_are_the_documented_ones(few_tokens, tmp_path):
    m, n, k = 3, 30, 16
    shape = ("--channels", 4, "--weight-channels", 2, "--m", m, "--n", n, "--k", k, "--bias", "--dtype-a", "fp32")
    few_tokens.ok(*shape, "--seed", 5, "--output", tmp_path / "out")
    root = np.sqrt(np.float32(k))
    a = (seeded(5, 0, (4, m, k)) + np.float32(0.5)).astype(np.float16)
    b = ((seeded(5, 1, (2, n, k)) + 2 / root) / root).astype(np.float16)
    bias = seeded(5, 2, (2, n)).astype(np.float16)
    assert_right(tmp_path / "out" / "c.npy", layer(a, b.repeat(2, axis=0), bias.repeat(2, axis=0)))


def test_defaults_are_printed_and_follow_what_is_given(few_tokens):
    text = (
        "samples 2, channels 6, weight_samples 2, weight_channels 3, m 4, n 10, k 16, lda 24, ldb 16, ldc 10, tokens bf16, weights bf16, C fp32, bias, "
        "gelu, seed 1"
    )
    flags = ("--samples", 2, "--channels", 6, "--weight-channels", 3, "--m", 4, "--n", 10, "--k", 16, "--lda", 24)
    flags += ("--dtype", "bf16", "--dtype-c", "fp32", "--bias", "--activation", "gelu")
    assert text in few_tokens.ok(*flags).stdout
    assert text in few_tokens.ok(*flags, "--list").stdout


# ---- refusals ----


@pytest.mark.parametrize(
    "flags, saying",
    [
        ("--m 0", "--m: '0'"),
        ("--samples 2.5", "--samples: '2.5'"),
        ("--k 64 --lda 63", "lda is 63; it must be k, 64, or more"),
        ("--n 64 --ldc 1", "ldc is 1"),
        ("--channels 6 --weight-channels 4", "weight_channels is 4; it must divide channels, 6, without a rest"),
        ("--samples 2 --weight-samples 3", "weight_samples is 3; it must divide samples, 2"),
        ("--dtype fp32", "dtype is fp32; weights must be fp16 or bf16"),
        ("--dtype bf16 --dtype-a fp16", "dtype_a is fp16; tokens must be fp32 or of the weights' type, bf16"),
        ("--dtype-c int8", "--dtype-c: 'int8' is unknown"),
        ("--activation tanh", "--activation: 'tanh' is unknown; none, relu, gelu or silu"),
        ("--m 17 --variant warp_per_row", "warp_per_row does not support m 17"),
        ("--k 12 --variant wide_loads", "wide_loads does not support k 12"),
        ("--lda 1073741825 --k 1", "lda is 1073741825"),
        ("--samples 1000000000 --channels 1000000000 --m 1", "the problem is too large: samples · channels · m · lda"),
    ],
)
def test_flags_are_refused_by_name(few_tokens, flags, saying):
    refused(few_tokens, *flags.split(), saying=saying)


def test_files_are_refused_by_name(few_tokens, tmp_path):
    a, b, bias = inputs(2, 11, 16)
    say = lambda *flags: refused(few_tokens, "--input", tmp_path / "in", *flags)
    save(tmp_path / "in", a, b[:, :8])
    assert "b.npy: shape [1, 1, 11, 8] does not go with a.npy's [1, 1, 2, 16]: k, the last extent, must be equal" in say()
    save(tmp_path / "in", a, b)
    assert "--bias: " in say("--bias") and "bias.npy is missing" in say("--bias")
    assert "--m 3 contradicts" in say("--m", 3)
    assert "--weight-channels 2 contradicts" in say("--weight-channels", 2)
    save(tmp_path / "in", a[0], b)
    assert "a.npy: shape [16]; it must be [samples, channels, m, k], leading extents of 1 may be missing" in say()
    save(tmp_path / "in", a, b, bias[:10])
    assert "bias.npy: shape [1, 1, 10] does not go with b.npy's [1, 1, 11, 16]: there must be a number for each row of B" in say()
