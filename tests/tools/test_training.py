"""examples/training without a GPU: gradients by finite differences, masks to the bit, losses as far from double precision as rounding
explains. Its command line and what is claimed of it: test_training_cli.py."""

import math
import sys

import numpy as np
import pytest
from conftest import BIN, ROOT, built

sys.path[:0] = [str(ROOT / folder) for folder in ("examples/training", "tests/cli")]

import block
import noise
from attentions import UNIT, InNumPy, Programs, rounded
from dropout import kept
from test_cli_backward import gradients

# ---- the block in double precision ----


@pytest.mark.parametrize("of_256", [0, 26])
def test_each_gradient_is_what_finite_differences_say(of_256):
    random, tokens, step = np.random.default_rng(3), block.token_numbers()[:40], 1e-4
    p = {name: a + 0.1 * random.standard_normal(a.shape) for name, a in block.initial_parameters().items()}
    loss = lambda p: block.loss_and_gradients(p, tokens, InNumPy(of_256=of_256), 5)[0]
    scaled = block.loss_and_gradients(p, tokens, InNumPy(of_256=of_256), 5)[1]
    assert scaled.keys() == p.keys()
    for name, array in p.items():
        gradient = scaled[name] / block.LOSS_SCALE
        some = random.standard_normal(array.shape)
        for along in (some / np.linalg.norm(some), gradient / np.linalg.norm(gradient)):
            up, down = (loss({**p, name: array + sign * step * along}) for sign in (1, -1))
            np.testing.assert_allclose((up - down) / (2 * step), (gradient * along).sum(), rtol=1e-5, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("of_256", [0, pytest.param(26, marks=pytest.mark.long)])
def test_the_loss_halves_and_falls_below_what_is_possible_without_attention(of_256):
    losses = list(block.train(InNumPy(of_256=of_256)))
    assert len(losses) == 200 and losses[-1] < losses[0] / 2
    assert losses[-1] < block.loss_without_context()


def test_a_word_alone_says_so_much_of_the_next_one(monkeypatch):
    monkeypatch.setattr(block, "words", lambda: ["a", "b", "a", "b", "a", "c"])  # behind a: b, b, c
    third = -(2 * math.log(2 / 3) + math.log(1 / 3)) / 5
    assert block.loss_without_context() == pytest.approx(third)


# ---- attention ----


def some_inputs(tokens=207):
    random = np.random.default_rng(4)
    return [random.standard_normal((1, block.HEADS, tokens, 32)) for _ in range(4)]


@pytest.mark.parametrize("tiled", [True, False])
@pytest.mark.parametrize("of_256", [0, 200])
def test_numpy_attention_is_the_judges(of_256, tiled):
    *qkv, d_o = some_inputs(70)
    weights = kept(block.HEADS, 70, of_256, 9) * (256 / (256 - of_256))
    o, _, *expected = gradients(*qkv, d_o, kept=weights, causal=True)
    attention = InNumPy(of_256=of_256, tiled=tiled)
    for found, right in zip((attention.forward(*qkv, 9), *attention.backward(d_o)), (o, *expected), strict=True):
        np.testing.assert_allclose(found, right, atol=1e-13)


@pytest.mark.parametrize("seed, shape, n", [(1, (12, 207), 26), (2**32 + 5, (3, 70), 1), (2**64 - 1, (2, 33), 255)])
def test_the_mask_is_the_programs_to_the_bit(tmp_path, seed, shape, n):
    flags = ["--heads", shape[0], "--seq-q", shape[1], "--dim", 32, "--dropout", n / 256, "--dropout-seed", seed, "--no-check"]
    built("05_flash_v2").ok(*flags, "--causal", "--output", tmp_path / "out")
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "mask.npy"), kept(*shape, n, seed))


def test_bf16_is_the_nearest_number_of_eight_bits_and_ties_are_even():
    x = np.array([1, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -0.0, 3e38, *np.random.default_rng(1).standard_normal(1000)])
    found = rounded(x, "bf16")
    np.testing.assert_array_equal(found[:4], [1, 1, 1 + 2**-6, 1 + 2**-7])
    mantissa, exponent = np.frexp(x)
    np.testing.assert_array_equal(found, np.ldexp(np.rint(mantissa * 256), exponent - 8))


@pytest.mark.parametrize("dtype, of_256", [("fp16", 26), ("bf16", 0), pytest.param("fp32", 26, marks=pytest.mark.long)])
def test_the_programs_attention_is_numpys(dtype, of_256):
    built("06_backward")
    *qkv, d_o = some_inputs()
    found, right = Programs(dtype, of_256), InNumPy(of_256=of_256)
    for mine, truth in zip((found.forward(*qkv, 3), *found.backward(d_o)), (right.forward(*qkv, 3), *right.backward(d_o)), strict=True):
        units = 16 if dtype == "fp32" else 4  # in fp32 the sums of 207 terms are rounded as coarsely
        np.testing.assert_allclose(mine, truth, rtol=0, atol=units * UNIT[dtype] * abs(truth).max())


# ---- losses with rounding ----


def z_scores(losses, dtype, of_256):
    """How many standard deviations, as noise.py expects them at most, each loss is from double precision."""
    expected = noise.expected(of_256, len(losses))
    return np.array([(loss - truth) / (UNIT[dtype] * deviation) for loss, (truth, deviation) in zip(losses, expected, strict=True)])


@pytest.mark.parametrize("dtype, of_256, tiled", [("fp16", 26, True), ("bf16", 0, True), ("bf16", 26, False)])
def test_rounding_moves_the_loss_as_far_as_expected(dtype, of_256, tiled):
    z = z_scores(list(block.train(InNumPy(dtype, of_256, tiled), 10)), dtype, of_256)
    assert abs(z).max() < 5 and 0.2 < np.sqrt((z**2).mean()) < 2


@pytest.mark.parametrize(
    "dtype, of_256", [("fp16", 0), ("bf16", 26), *(pytest.param(*case, marks=pytest.mark.long) for case in (("fp16", 26), ("bf16", 0)))]
)
def test_three_steps_in_the_simulator_are_as_near_as_rounding_lets_them(dtype, of_256):
    built("06_backward")
    z = z_scores(list(block.train(Programs(dtype, of_256), 3)), dtype, of_256)
    assert abs(z).max() < 5 and abs(z).max() > 0.01  # it did round


# ---- PyTorch ----


@pytest.fixture
def torch_block():
    pytest.importorskip("torch", reason="this Python has no PyTorch")
    import torch_block

    return torch_block


@pytest.mark.parametrize("of_256", [0, 26])
def test_in_pytorch_the_block_is_the_same(torch_block, of_256):
    in_fp32 = list(torch_block.train(torch_block.attention_of("torch", of_256), "fp32", 5))
    np.testing.assert_allclose(in_fp32, list(block.train(InNumPy(of_256=of_256), 5)), rtol=1e-6)
    z = z_scores(list(torch_block.train(torch_block.attention_of("torch", of_256), "bf16", 5)), "bf16", of_256)
    assert abs(z).max() < 5 and abs(z).max() > 0.01


@pytest.mark.parametrize("dtype, of_256", [("fp16", 0), ("bf16", 26)])
def test_in_pytorch_our_kernels_are_as_near(torch_block, dtype, of_256, monkeypatch, sim):
    libraries = BIN.parent / "lib"
    if not (libraries / "libattention_06_backward.so").is_file():
        pytest.skip(f"{libraries} has no libraries")
    monkeypatch.setenv("FLASHSTEPS_SIM_LIB", str(libraries))
    z = z_scores(list(torch_block.train(torch_block.attention_of("flashsteps", of_256), dtype, 3)), dtype, of_256)
    assert abs(z).max() < 5 and abs(z).max() > 0.01
