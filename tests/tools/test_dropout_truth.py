"""What results with dropout are judged by in benchmarks/dropout_peers.py: the mask of our kernels, the truth with it, and what is known of
results with other masks. The judge is NumPy, as for the command line. What needs PyTorch is skipped without it.
"""

import importlib.util
import sys

import numpy as np
import pytest
from conftest import ROOT

sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "cli")]

import attention_peers
import backward_peers
import dropout_truth
import peers
from test_cli_backward import gradients
from test_cli_dropout import mask, philox

SEED = 2**63 + 12345
MODULES = [name for name in ("numpy", "torch") if importlib.util.find_spec(name)]


# ---- the mask ----


@pytest.mark.parametrize("module", MODULES)
def test_philox_is_the_judges_where_words_are_largest_too(module):
    xp = importlib.import_module(module)
    ends = np.array([0, 1, 2**31 - 1, 2**31, 2**32 - 1])
    counter = [each.ravel() for each in np.meshgrid(ends, ends, ends, ends)]
    for key in ((0, 0), (2**32 - 1, 2**31), (0x9E3779B9, 7)):
        for rounds in (7, 10):
            words = dropout_truth.philox([xp.asarray(each) for each in counter], key, rounds)
            np.testing.assert_array_equal(np.stack([np.asarray(word) for word in words]).astype(np.uint64), philox(counter, key, rounds))


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("seed", [1, 2**32, SEED, 2**64 - 1])
@pytest.mark.parametrize("n", [1, 26, 128, 255])
def test_the_mask_is_the_judges_bit_for_bit(module, n, seed):
    xp, (batch, heads, seq_q, seq_k) = importlib.import_module(module), (2, 3, 70, 101)
    judged = mask(batch, heads, seq_q, seq_k, n, seed).reshape(-1, seq_q, seq_k) == 1
    for first, queries in [(0, range(seq_q)), (4, [0, 7, 8, 31, 32, 33, 69])]:  # all; the last heads, some queries
        flat = xp.arange(first, batch * heads)
        found = dropout_truth.kept(xp, n, seed, flat // heads, flat % heads, xp.asarray(list(queries)), xp.arange(seq_k))
        np.testing.assert_array_equal(np.asarray(found), judged[first:, list(queries)])


# ---- the judges, where PyTorch is ----


def random_inputs(torch, shape, dtype):
    """q, k, v and dO."""
    torch.manual_seed(1)
    q, k, v, d_o = (torch.randn(shape).to(getattr(torch, dtype)) for _ in range(4))
    return q, k, v + 0.5, d_o


def by_numpy(torch, inputs, weights, causal):
    """O, LSE, dQ, dK and dV, rounded to the dtype."""
    found = gradients(*(x.double().numpy() for x in inputs), kept=weights, causal=causal)
    return [torch.from_numpy(x).to(torch.float32 if x.ndim == 3 else inputs[0].dtype) for x in found]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_results_with_the_right_mask_are_right_and_those_with_another_are_not(dtype, causal, monkeypatch):
    torch = pytest.importorskip("torch")
    batch, heads, seq, n = 2, 3, 200, 51
    inputs, rows = random_inputs(torch, (batch, heads, seq, 64), dtype), peers.sampled_rows(seq, 1)
    monkeypatch.setattr(backward_peers, "SCORES", 4 * seq**2)  # two parts
    weights = lambda begin, end, queries: dropout_truth.weights(torch, n, SEED, heads, begin, end, queries, seq, "cpu")
    of_rows, of_all = weights(0, 6, rows).unflatten(0, (batch, heads)), lambda begin, end: weights(begin, end, range(seq))
    forward, forward_without = (attention_peers.Truth(torch, *inputs[:3], causal, rows, m) for m in (of_rows, None))
    backward, backward_without = (backward_peers.Truth(torch, *inputs, causal, rows, m) for m in (of_all, None))
    factor, right = 256 / (256 - n), mask(batch, heads, seq, seq, n, SEED).astype(np.float64)
    o, lse, *honest = by_numpy(torch, inputs, right * factor, causal)
    assert forward.worst_ratio(o, lse) < 1 and backward.worst_ratio(*honest) < 1
    assert forward_without.worst_ratio(o, lse) > 1 and backward_without.worst_ratio(*honest) > 1
    for wrong in (
        np.ones_like(right),
        right,  # without the factor
        (1 - right) * factor,
        right.swapaxes(-1, -2) * factor,
        right[:, ::-1] * factor,  # of another head
        right[::-1] * factor,  # of another batch entry
        mask(batch, heads, seq, seq, n, SEED + 1) * factor,
        mask(batch, heads, seq, seq, n + 5, SEED) * 256 / (256 - n - 5),
    ):
        o, lse, *spoilt = by_numpy(torch, inputs, wrong, causal)
        assert forward.worst_ratio(o, lse) > 1
        for gradient in range(3):
            assert backward.worst_ratio(*(spoilt[i] if i == gradient else honest[i] for i in range(3))) > 1


@pytest.mark.parametrize("causal", [False, True])
def test_means_and_variances_are_those_of_results_that_are_linear_in_the_mask(causal):
    torch = pytest.importorskip("torch")
    shape, numbers, rows = (1, 2, 9, 3), np.random.default_rng(1), torch.tensor([0, 1, 5, 8])
    inputs = [numbers.standard_normal(shape) + offset for offset in (0, 2, 0.5, 0)]  # K does not cancel
    inputs[0] *= 2  # some P are near 1
    results = lambda weights: np.stack([x[0] for n, x in enumerate(gradients(*inputs, kept=weights, causal=causal)) if n != 1])
    mean, ones = results(1), np.ones((*shape[:3], 9))
    variance = 0
    for query, key in np.ndindex(9, 9):
        ones[..., query, key] = 2
        variance += (results(ones) - mean) ** 2
        ones[..., query, key] = 1
    q, k, v, d_o = (torch.from_numpy(x[0]) for x in inputs)
    found = dropout_truth.forward_moments(torch, q, k, v, causal, rows) + dropout_truth.backward_moments(torch, q, k, v, d_o, causal, rows)
    for (its_mean, its_variance), each_mean, each_variance in zip(found, mean, variance, strict=True):
        np.testing.assert_allclose(its_mean, each_mean[:, rows], atol=1e-12)
        np.testing.assert_allclose(its_variance, each_variance[:, rows], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_of_unknown_masks_share_and_factor_are_judged(causal):
    torch = pytest.importorskip("torch")
    shape = (2, 8, 300, 64)
    inputs, rows, numbers = random_inputs(torch, shape, "float16"), peers.sampled_rows(300, 1), np.random.default_rng(1)
    forward = dropout_truth.Statistics(torch, dropout_truth.forward_moments, inputs[:3], causal, rows, 0.1)
    backward = dropout_truth.Statistics(torch, dropout_truth.backward_moments, inputs, causal, rows, 0.1, pairs=4 * 300**2)
    verdicts = {}
    for share, factor in [(0.1, 1 / 0.9), (26 / 256, 1 / 0.9), (0.1, 1.0), (0.1, 1 / 0.81), (0.0, 1.0), (0.05, 1 / 0.95), (0.2, 1.25)]:
        o, _, *grads = by_numpy(torch, inputs, (numbers.random((*shape[:3], 300)) >= share) * factor, causal)
        verdicts[share, factor] = forward.worst_ratio(o) <= 1, backward.worst_ratio(*grads) <= 1
    assert {what for what, verdict in verdicts.items() if verdict == (True, True)} == {(0.1, 1 / 0.9), (26 / 256, 1 / 0.9)}
    assert {verdict for what, verdict in verdicts.items() if what[0] not in (0.1, 26 / 256) or what[1] != 1 / 0.9} == {(False, False)}
    o[1, 2, 150] = torch.nan
    assert forward.worst_ratio(o) == torch.inf
