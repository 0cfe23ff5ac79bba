"""The libraries' C interfaces (library/attention_library.h, linear_library.h) on the simulator, called as a user's program calls it: with
memory of its own. The judge is NumPy. On a GPU test_flashsteps_torch.py does the same through PyTorch.
"""

import ast
import ctypes
import importlib.util
import itertools
import json
import math
import re
import subprocess
import sys
import threading
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from conftest import BIN, ROOT, cxx

sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "cli")]

import peers
from test_cli_backward import gradients, problem
from test_cli_dropout import mask

TYPES = {np.float32: "fp32", np.float16: "fp16"}
FORWARD, BACKWARD, SPARSE, DECODING = "05_flash_v2", "06_backward", "07_block_sparse", "09_decoding"


@pytest.fixture(scope="module")
def libraries():
    folder = BIN.parent / "lib"
    if "sim" not in BIN.parent.name:
        pytest.skip(f"{folder} is not the simulator's; the GPU's libraries take memory of a GPU")
    return {step: peers.Library(folder / f"libattention_{step}.so") for step in (FORWARD, BACKWARD, SPARSE, DECODING)}


def tensor(array):
    """[batch, heads, rows, dim], with any strides but the last."""
    return peers.Tensor(array.ctypes.data, *(s // array.itemsize for s in array.strides[:3]))


def described(q, k, v, o, lse, causal=False, window=0, scale=math.nan, sums=None, checked=True, dropout=0, seed=0):
    """An AttentionProblem. `sums`: an int32 array, checked by the library or not."""
    options = {"causal": int(causal), "window": window, "scale": scale, "dropout": dropout, "dropout_seed": seed}
    sizes = {"kv_heads": k.shape[1], "seq_k": k.shape[2]}
    made = peers.problem_at(q.shape, TYPES[q.dtype.type], map(tensor, (q, k, v, o)), lse.ctypes.data, **sizes, **options)
    if sums is not None:
        made.cu_seqlens, made.cu_seqlens_count = sums.ctypes.data, len(sums)
        made.cu_seqlens_host = sums.ctypes.data if checked else None
    return made


def forward(libraries, q, k, v, variant="tuned", o=None, **options):
    """O and LSE."""
    o, lse = np.empty_like(q) if o is None else o, np.empty(q.shape[:3], np.float32)
    with libraries[FORWARD].variant(variant, described(q, k, v, o, lse, **options)) as (launch, _):
        launch()
    return o, lse


def backward(libraries, q, k, v, d_o, o, lse, variant="tuned", made=None, **options):
    """dQ, dK and dV."""
    made = [np.empty_like(x) for x in (q, k, v)] if made is None else made
    tensors = peers.Gradients(*(tensor(x) for x in (d_o, *made)))
    with libraries[BACKWARD].variant(variant, described(q, k, v, o, lse, **options), tensors) as (launch, _):
        launch()
    return made


def assert_close(made, expected, relative=2.0**-7):
    for name, one, right in zip(("o", "lse", "dq", "dk", "dv"), made, expected, strict=True):
        np.testing.assert_allclose(one, right, rtol=0, atol=relative * abs(right).max(), err_msg=name)


def assert_o_and_lse(made, expected):
    for one, right in zip(made, expected, strict=True):
        np.testing.assert_allclose(one, right, rtol=0, atol=2.0**-7 * abs(right).max())


def all_five(libraries, q, k, v, d_o, variants=("tuned", "tuned"), **options):
    o, lse = forward(libraries, q, k, v, variants[0], **options)
    return [o, lse, *backward(libraries, q, k, v, d_o, o, lse, variants[1], **options)]


@pytest.mark.parametrize(
    ("dtype", "variants", "relative"),
    [(np.float16, ("tuned", "tuned"), 2.0**-7), (np.float16, ("tensor_cores", "tuned_80"), 2.0**-7), (np.float32, ("scalar", "recompute"), 1e-5)],
)
def test_both_passes_are_right(libraries, dtype, variants, relative):
    tensors = problem(2, 4, 2, 70, 101, 64, dtype)
    made = all_five(libraries, *tensors, variants, causal=True, window=60, scale=0.2)
    assert_close(made, gradients(*tensors, causal=True, window=60, scale=0.2), relative)


def test_rows_may_lie_anywhere_and_what_lies_between_them_stays(libraries):
    tensors = problem(2, 2, 2, 40, 40, 32)
    expected = gradients(*tensors, causal=True)
    room = np.full((2, 40, 7, 2, 39), 7.0, np.float16)  # tokens first, all tensors in one, rows longer than dim, at odd elements
    views = [room[:, :, n, :, 3:35].transpose(0, 2, 1, 3) for n in range(7)]
    for view, values in zip(views, (*tensors[:3], tensors[3]), strict=False):
        view[...] = values
    q, k, v, d_o, dq, dk, dv = views
    o = np.full((2, 40, 2, 36), 7.0, np.float16)
    o_view = o.transpose(0, 2, 1, 3)[..., 1:33]
    _, lse = forward(libraries, q, k, v, o=o_view, causal=True)
    backward(libraries, q, k, v, d_o, o_view, lse, made=[dq, dk, dv], causal=True)
    assert_close([o_view, lse, dq, dk, dv], expected)
    assert (room[..., :3] == 7).all() and (room[..., 35:] == 7).all() and (o[..., 0] == 7).all() and (o[..., 33:] == 7).all()
    np.testing.assert_array_equal(q, tensors[0])


def test_a_stride_of_0_repeats_rows(libraries):
    tensors = problem(1, 2, 1, 20, 30, 32)
    k, v = (np.broadcast_to(x, (1, 2, 30, 32)) for x in tensors[1:3])
    o, _ = forward(libraries, tensors[0], k, v)
    np.testing.assert_array_equal(o, forward(libraries, *tensors[:3])[0])


@pytest.mark.parametrize("checked", [True, False])
def test_packed_sequences(libraries, checked):
    sums = np.array([0, 20, 20, 75], np.int32)
    tensors = problem(1, 2, 2, 75, 75, 32)
    made = all_five(libraries, *tensors, sums=sums, checked=checked)
    for first, end in ((0, 20), (20, 75)):
        of_one = [x[:, :, first:end] for x in tensors]
        assert_close([x[:, :, first:end] for x in made], gradients(*of_one))


PACKED = [
    (np.float32, 40, "scalar", "recompute", 77), (np.float16, 40, "any_dim", "any_dim", 0), (np.float16, 32, "tuned", "recompute", 0),
    (np.float16, 64, "tuned", "tuned", 0), (np.float16, 128, "tuned", "tuned", 0),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "dim", "first", "second", "dropout"), PACKED)
@pytest.mark.parametrize("rest", [100.0, math.nan])
@pytest.mark.parametrize("sums", [[0, 20, 20, 75], [5, 40, 60]])
def test_tokens_of_no_sequence_see_nothing_and_nobody_sees_them(libraries, dtype, dim, first, second, dropout, rest, sums):
    tensors = problem(1, 2, 1, 200, 200, dim, dtype)
    for x in tensors:
        x[:, :, : sums[0]] = x[:, :, sums[-1] :] = rest
    made = all_five(libraries, *tensors, (first, second), sums=np.array(sums, np.int32), checked=False, dropout=dropout, seed=3)
    kept = mask(1, 2, 200, 200, dropout, 3).astype(float) * 256 / (256 - dropout) if dropout else np.ones((1, 2, 200, 200))
    for a, b in itertools.pairwise(sums):
        if a < b:
            expected = gradients(*(x[:, :, a:b] for x in tensors), kept=kept[:, :, a:b, a:b])
            assert_close([x[:, :, a:b] for x in made], expected, 2.0**-7 if dtype == np.float16 else 1e-5)
    for name, x in zip(("o", "lse", "dq", "dk", "dv"), made, strict=True):
        for beside in (x[:, :, : sums[0]], x[:, :, sums[-1] :]):
            np.testing.assert_array_equal(beside, -np.inf if name == "lse" else 0, err_msg=name)


@pytest.mark.parametrize("variants", [("tuned", "tuned"), ("scalar", "recompute"), ("any_dim", "any_dim")])
def test_dropout_keeps_the_same_pairs_forwards_and_backwards(libraries, variants):
    tensors = problem(2, 2, 1, 70, 101, 64)
    seed, n = 2**64 - 3, 77
    kept = mask(2, 2, 70, 101, n, seed) * (256 / (256 - n))
    assert_close(all_five(libraries, *tensors, variants, dropout=n, seed=seed), gradients(*tensors, kept=kept))


def test_operations_are_those_of_visible_pairs(libraries):
    q, k, v, _ = problem(1, 2, 2, 8, 8, 32)
    o, lse, sums = np.empty_like(q), np.empty(q.shape[:3], np.float32), np.array([0, 3, 8], np.int32)
    for options, expected in [({}, 64), ({"causal": True}, 36), ({"sums": sums}, 34), ({"sums": sums, "checked": False}, math.nan)]:
        with libraries[FORWARD].variant("tuned", described(q, k, v, o, lse, **options)) as (_, operations):
            np.testing.assert_equal(operations, 4 * 32 * 2 * expected)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dtype": b"fp8"}, "dtype is 'fp8'"),
        ({"dtype": None}, "dtype is 'null'"),
        ({"heads": 0}, "heads is 0"),
        ({"heads": 3}, "heads must be a multiple of kv-heads"),
        ({"dim": 257}, "dim"),
        ({"lse": None}, "lse is null"),
        ({"k": peers.Tensor(None, 0, 0, 32)}, "k is null"),
        ({"v": peers.Tensor(256, 0, 0, -32)}, "v has a negative stride"),
        ({"o": peers.Tensor(255, 512, 256, 32)}, "o does not begin at a multiple of 2 bytes"),
        ({"o": peers.Tensor(256, 512, 256, 0)}, "o has rows that overlap (a stride of 0 where 32 elements lie)"),
        ({"o": peers.Tensor(256, 512, 0, 32)}, "o has rows that overlap (a stride of 0"),
        ({"o": peers.Tensor(256, 512, 256, 31)}, "o has rows that overlap (a stride of 31 where 32 elements lie)"),
        ({"o": peers.Tensor(256, 512, 255, 32)}, "o has rows that overlap (a stride of 255 where 256 elements lie)"),
        ({"o": peers.Tensor(256, 512, 32, 48)}, "o has rows that overlap (a stride of 48 where 64 elements lie)"),
        ({"q": peers.Tensor(256, 0, 0, 2**60)}, "q has strides beyond 2^62 bytes"),
        ({"k": peers.Tensor(256, 0, 2**62, 0)}, "k has strides beyond 2^62 bytes"),
        ({"v": peers.Tensor(256, 0, 2**63 - 1, 2**63 - 1)}, "v has strides beyond 2^62 bytes"),
        ({"lse": 258}, "lse does not begin at a multiple of 4 bytes"),
        ({"device": 1}, "device is 1; the simulator has number 0 alone"),
        ({"device": -1}, "device is -1"),
        ({"dropout": 256}, "dropout is 256 of 256"),
        ({"dropout": -1}, "dropout is -1 of 256"),
        ({"window": -1}, "window is -1"),
        ({"cu_seqlens_count": 3}, "cu_seqlens and its count: one is missing"),
        ({"cu_seqlens": 256}, "cu_seqlens and its count: one is missing"),
        ({"cu_seqlens": 256, "cu_seqlens_count": 1}, "cu_seqlens_count must be 2 or more"),
    ],
)
def test_bad_problems_are_refused_with_the_reason(libraries, change, reason):
    q, k, v, _ = problem(1, 2, 2, 8, 8, 32)
    made = described(q, k, v, np.empty_like(q), np.empty(q.shape[:3], np.float32))
    for name, value in change.items():
        setattr(made, name, value)
    with pytest.raises(peers.Refused, match=re.escape(reason)), libraries[FORWARD].variant("tuned", made):
        pass


def test_what_only_a_variant_refuses_names_it(libraries):
    q, k, v, _ = problem(1, 2, 2, 8, 8, 32)
    o, lse = np.empty_like(q), np.empty(q.shape[:3], np.float32)
    odd = np.empty((1, 2, 8, 33), np.float16)[..., :32]
    for variant, at, options, reason in [
        ("registers", q, {"dropout": 5}, "registers does not support dropout"),
        ("registers", odd, {}, "registers does not support rows that begin elsewhere than at multiples of 16 bytes"),
        ("nothing", q, {}, "has no variant 'nothing'"),
    ]:
        with pytest.raises(peers.Refused, match=re.escape(reason)), libraries[FORWARD].variant(variant, described(at, k, v, o, lse, **options)):
            pass


@pytest.mark.parametrize("sums", [[-100, 20, 40], [0, 20, 4000], [0, 2**31 - 1, -(2**31), 40], [100, 200, 300]])
def test_sums_that_nobody_checked_and_that_are_wrong_touch_nothing_else(libraries, sums):
    tensors = problem(1, 1, 1, 40, 40, 32)
    for variants in (("tuned", "tuned"), ("scalar", "recompute"), ("any_dim", "any_dim")):
        all_five(libraries, *tensors, variants, sums=np.array(sums, np.int32), checked=False)  # the simulator would find it


# ---- options of scores, and the lengths of a padded cache ----


def with_scores(q, k, v, causal=False, window=0, scale=None, softcap=0.0, alibi=0.0, bias=None, sinks=None, lengths=None):
    """O and LSE in double precision, entry by entry and head by head."""
    batch, heads, seq_q, dim = q.shape
    group, o, lse = heads // k.shape[1], np.zeros(q.shape), np.full(q.shape[:3], -np.inf)
    first = 2 ** int(math.log2(heads))  # ALiBi's slopes: those of a power of two, then every second one of twice as many heads
    exponents = [(h + 1) / first for h in range(first)] + [(2 * n + 1) / (2 * first) for n in range(heads - first)]
    for b in range(batch):
        keys = k.shape[2] if lengths is None else min(max(int(lengths[b]), 0), k.shape[2])
        distance = np.arange(seq_q)[:, None] + keys - seq_q - np.arange(keys)
        for h in range(heads):
            s = q[b, h].astype(float) @ k[b, h // group, :keys].astype(float).T * (1 / math.sqrt(dim) if scale is None else scale)
            s = softcap * np.tanh(s / softcap) if softcap else s
            s = s if bias is None else s + np.broadcast_to(bias, (batch, heads, seq_q, k.shape[2]))[b, h, :, :keys].astype(float)
            s = s - 2.0 ** (-alibi * exponents[h]) * abs(distance) if alibi else s
            s = np.where((causal & (distance < 0)) | ((window > 0) & (abs(distance) >= window)), -np.inf, s)
            if sinks is not None:
                s = np.concatenate([s, np.full((seq_q, 1), float(sinks[h]))], 1)
            seen = ~np.isneginf(s).all(1) if s.shape[1] else np.zeros(seq_q, bool)
            if not seen.any():
                continue
            largest = s[seen].max(1, keepdims=True)
            p = np.exp(s[seen] - largest)
            lse[b, h, seen] = largest[:, 0] + np.log(p.sum(1))
            o[b, h, seen] = (p / p.sum(1, keepdims=True))[:, :keys] @ v[b, h // group, :keys].astype(float)
    return o, lse


def described_scores(q, k, v, o, lse, bias=None, sinks=None, lengths=None, checked=True, softcap=0.0, alibi=0.0, **options):
    made = described(q, k, v, o, lse, **options)
    made.softcap, made.alibi = softcap, alibi
    if bias is not None:
        made.bias = tensor(np.broadcast_to(bias, (*q.shape[:3], k.shape[2])))
    made.sinks = None if sinks is None else sinks.ctypes.data
    made.lengths = None if lengths is None else lengths.ctypes.data
    made.lengths_host = made.lengths if checked else None
    return made


def forward_scores(libraries, q, k, v, variant="tuned", **options):
    """O, LSE and operations."""
    o, lse = np.full_like(q, 7), np.full(q.shape[:3], 7, np.float32)
    with libraries[DECODING].variant(variant, described_scores(q, k, v, o, lse, **options)) as (launch, operations):
        launch()
    return o, lse, operations


def assert_scores(made, expected, dtype=np.float16):
    for one, right in zip(made, expected, strict=True):
        dead = np.isneginf(right)
        assert np.array_equal(np.isneginf(one), dead)
        one, right = (np.where(dead, 0, x) for x in (one, right))
        np.testing.assert_allclose(one, right, rtol=0, atol=(2.0**-8 if dtype == np.float16 else 1e-5) * max(1, abs(right).max()))


def normal(*shape, dtype=np.float16, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


SINKS = np.array([6, -3, 4, 7.5], np.float32)
LENGTHS, WRONG = np.array([77, 0, 200], np.int32), np.array([1, -1, 5], np.int32)
SCORES = {
    "softcap": {"softcap": 0.7},
    "alibi": {"alibi": 8.0, "causal": True},
    "bias": {"bias": normal(3, 4, 2, 200, seed=5)},
    "sinks": {"sinks": SINKS},
    "lengths": {"lengths": LENGTHS},
    "all": {"softcap": 3.0, "alibi": 6.0, "bias": normal(3, 4, 2, 200, seed=5), "sinks": SINKS, "lengths": LENGTHS, "causal": True, "window": 150, "scale": 0.3},
}  # fmt: skip


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize(("variant", "dtype", "dim"), [("tuned", np.float16, 64), ("stream_k", np.float16, 32), ("any_dim", np.float32, 40)])
def test_options_of_scores_are_right(libraries, name, variant, dtype, dim):
    q, k, v = normal(3, 4, 2, dim, dtype=dtype), normal(3, 2, 200, dim, dtype=dtype, seed=2), normal(3, 2, 200, dim, dtype=dtype, seed=3)
    options = dict(SCORES[name])
    if "bias" in options:
        options["bias"] = options["bias"].astype(dtype)
    *made, operations = forward_scores(libraries, q, k, v, variant, **options)
    assert_scores(made, with_scores(q, k, v, **options), dtype)
    without = forward_scores(libraries, q, k, v, variant, **{x: y for x, y in options.items() if x in ("causal", "window", "scale")})
    assert not np.allclose(made[0], without[0], atol=0.01), "the option does nothing"
    if name in ("lengths", "sinks"):
        assert operations == 4 * dim * 4 * 2 * (277 if name == "lengths" else 600)


def test_alibi_of_heads_that_are_no_power_of_two(libraries):
    q, k, v = normal(1, 6, 1, 64), normal(1, 2, 90, 64, seed=2), normal(1, 2, 90, 64, seed=3)
    assert_scores(forward_scores(libraries, q, k, v, alibi=8.0)[:2], with_scores(q, k, v, alibi=8.0))


@pytest.mark.parametrize("shape", [(1, 1, 1, 90), (3, 1, 1, 90), (1, 4, 1, 90), (1, 1, 2, 90), (3, 1, 2, 90)])
def test_a_bias_may_have_strides_of_0_and_lie_anywhere(libraries, shape):
    q, k, v = normal(3, 4, 2, 64), normal(3, 4, 90, 64, seed=2), normal(3, 4, 90, 64, seed=3)
    room = np.full((*reversed(shape[:3]), 107), np.nan, np.float16)  # rows longer than they must be, at odd elements, in another order
    bias = room[..., 3:93].transpose(2, 1, 0, 3)
    bias[...] = normal(*shape, seed=4)
    bias[..., ::7] = -np.inf
    v[:, :, ::7] = np.nan  # which a key that is hidden from all has
    k[:, :, ::7] = np.inf
    expected = with_scores(q, *(np.nan_to_num(x.astype(float), nan=0, posinf=0) for x in (k, v)), bias=bias)
    for variant in ("tuned", "any_dim"):
        assert_scores(forward_scores(libraries, q, k, v, variant, bias=bias)[:2], expected)


@pytest.mark.parametrize("variant", ["tuned", "stream_k", "any_dim"])
@pytest.mark.parametrize("lengths", [[-5, 300, 40], [2**31 - 1, -(2**31), 201]])
def test_lengths_that_nobody_checked_and_that_are_wrong_touch_nothing_else(libraries, variant, lengths):
    q, k, v = normal(3, 4, 2, 64), normal(3, 2, 200, 64, seed=2), normal(3, 2, 200, 64, seed=3)
    lengths = np.array(lengths, np.int32)
    *made, operations = forward_scores(libraries, q, k, v, variant, lengths=lengths, checked=False, causal=True)  # the simulator would find it
    assert math.isnan(operations)
    assert_scores(made, with_scores(q, k, v, lengths=lengths, causal=True))


def test_what_lies_behind_a_length_is_not_looked_at(libraries):
    q, k, v = normal(2, 4, 1, 64), normal(2, 2, 200, 64, seed=2), normal(2, 2, 200, 64, seed=3)
    lengths = np.array([33, 150], np.int32)
    expected = with_scores(q, k, v, lengths=lengths)
    for x in (k, v):
        x[0, :, 33:] = x[1, :, 150:] = np.nan
    for variant in ("tuned", "any_dim"):
        assert_scores(forward_scores(libraries, q, k, v, variant, lengths=lengths)[:2], expected)


def test_a_program_with_options_of_scores_may_be_launched_elsewhere_with_other_lengths(libraries, example):
    del libraries
    c = ctypes.CDLL(str(BIN.parent / "lib" / f"libattention_{DECODING}.so"))
    c.attention_error.restype, c.attention_prepare.restype, c.attention_launch_on.restype = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_bool
    q, k, v = normal(3, 4, 1, 64), normal(3, 2, 200, 64, seed=2), normal(3, 2, 200, 64, seed=3)
    bias, sinks, lengths = normal(1, 4, 1, 200, seed=4), SINKS, LENGTHS
    o, lse = np.empty_like(q), np.empty((3, 4, 1), np.float32)
    for checked in (True, False):
        made = described_scores(q, k, v, o, lse, bias=bias, sinks=sinks, lengths=lengths, checked=checked)
        program = ctypes.c_void_p(c.attention_prepare(b"tuned", ctypes.byref(made)))
        assert program, c.attention_error()

        def launch_on(program=program, **arrays):
            at = {name: None if x is None else x if isinstance(x, int) else x.ctypes.data for name, x in arrays.items()}
            places = dict(zip(("q", "k", "v", "o", "lse"), (x.ctypes.data for x in (q, k, v, o, lse)), strict=True))
            return c.attention_launch_on(program, ctypes.byref(example._Addresses(**places | at)), None, None)

        others = {"bias": -bias, "sinks": np.flip(sinks).copy(), "lengths": np.array([200, 31, 5], np.int32)}
        assert launch_on(**others, lengths_host=others["lengths"]), c.attention_error()
        assert_scores((o, lse), with_scores(q, k, v, **others))
        assert launch_on(bias=bias, sinks=sinks, lengths=lengths), c.attention_error()
        assert_scores((o, lse), with_scores(q, k, v, bias=bias, sinks=sinks, lengths=lengths))
        for wrong, reason in [
            ({"bias": None}, b"bias is null, and the program was prepared with it"),
            ({"sinks": None}, b"sinks is null, and the program was prepared with it"),
            ({"lengths": None}, b"lengths is null, and the program was prepared with it"),
            ({"bias": 4097}, b"bias does not begin at a multiple of 2 bytes"),
            ({"sinks": 4098}, b"sinks does not begin at a multiple of 4 bytes"),
            ({"lengths": 4098}, b"lengths does not begin at a multiple of 4 bytes"),
            ({"lengths_host": np.array([0, 201, 5], np.int32)}, b"lengths holds 201; it must be from 0 to seq-k, 200"),
        ]:
            assert not launch_on(**others | wrong) and reason in c.attention_error(), c.attention_error()
        c.attention_release(program)
    program = ctypes.c_void_p(c.attention_prepare(b"tuned", ctypes.byref(described(q, k, v, o, lse))))
    assert not launch_on(program, bias=bias) and b"bias is given, and the program was prepared without it" in c.attention_error()
    assert not launch_on(program, lengths_host=lengths) and b"lengths_host is given, and lengths is null" in c.attention_error()
    c.attention_release(program)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"softcap": -1.0}, "softcap is -1; it must be 0 (none) to 2^127"),
        ({"softcap": math.nan}, "softcap is nan"),
        ({"alibi": 2000.0}, "alibi is 2000; it must be 0 (none) to 1024"),
        ({"bias": peers.Tensor(4097, 0, 0, 0)}, "bias does not begin at a multiple of 2 bytes"),
        ({"bias": peers.Tensor(4096, 0, -1, 0)}, "bias has a negative stride"),
        ({"bias": peers.Tensor(4096, 0, 0, 2**61)}, "bias has strides beyond 2^62 bytes"),
        ({"sinks": 4098}, "sinks does not begin at a multiple of 4 bytes"),
        ({"lengths": 4098, "lengths_host": None}, "lengths does not begin at a multiple of 4 bytes"),
        ({"lengths": None}, "lengths_host is given, and lengths is null"),
        ({"lengths_host": WRONG.ctypes.data}, "lengths holds -1; it must be from 0 to seq-k, 200"),
    ],
)
def test_bad_options_of_scores_are_refused_with_the_reason(libraries, change, reason):
    q, k, v = normal(3, 4, 2, 64), normal(3, 2, 200, 64), normal(3, 2, 200, 64)
    made = described_scores(q, k, v, np.empty_like(q), np.empty((3, 4, 2), np.float32), lengths=LENGTHS)
    for name, value in change.items():
        setattr(made, name, value)
    with pytest.raises(peers.Refused, match=re.escape(reason)), libraries[DECODING].variant("tuned", made):
        pass


@pytest.mark.parametrize(("name", "reason"), [("softcap", "a softcap"), ("alibi", "ALiBi"), ("bias", "a bias"), ("sinks", "sinks"), ("lengths", "lengths of a padded cache")])
def test_options_of_scores_are_refused_by_name_where_no_kernel_has_them(libraries, name, reason):
    q, k, v = normal(3, 4, 2, 64), normal(3, 2, 200, 64), normal(3, 2, 200, 64)
    o, lse, made = np.empty_like(q), np.empty((3, 4, 2), np.float32), [np.empty_like(x) for x in (q, k, v)]
    problem_ = described_scores(q, k, v, o, lse, **SCORES[name])
    gradients_ = peers.Gradients(*(tensor(x) for x in (o, *made)))
    for step, variant, given in ((FORWARD, "lazy_rescale", None), (SPARSE, "balanced", None), (DECODING, "cluster", None), (BACKWARD, "tuned", gradients_),
                                 (SPARSE, "backward", gradients_)):  # fmt: skip
        with pytest.raises(peers.Refused, match=f"{variant} does not support {reason}; it supports "), libraries[step].variant(variant, problem_, given):
            pass


def test_lengths_contradict_packed_sequences(libraries):
    q, k, v = normal(1, 2, 20, 64), normal(1, 2, 20, 64), normal(1, 2, 20, 64)
    sums, lengths = np.array([0, 5, 20], np.int32), np.array([20], np.int32)
    made = described_scores(q, k, v, np.empty_like(q), np.empty((1, 2, 20), np.float32), lengths=lengths, sums=sums)
    with pytest.raises(peers.Refused, match="lengths contradict packed sequences"), libraries[DECODING].variant("any_dim", made):
        pass


# ---- sparse masks ----


class Mask:
    """A sparse mask in the caller's memory, of 300 queries and 400 keys in blocks of 128 × 64, and what it lets queries see [heads, 300, 400]:
    a dense head, two with blocks of their own, one that streams by block, one by token. One head has a row without live blocks."""

    def __init__(self):
        numbers = np.random.default_rng(7)
        self.types = np.array([0, 1, 2, 3, 1], np.int32)
        self.streaming = np.array([[0, 0], [0, 0], [1, 1], [5, 70], [0, 0]], np.int32)
        blocks = numbers.random((5, 3, 7)) < 0.4
        blocks[4, 1] = False
        self.bits = np.zeros((1, 5, 3, 1), np.uint32)
        for column in range(7):
            self.bits[0, :, :, 0] |= blocks[:, :, column].astype(np.uint32) << np.uint32(column)
        i, j = np.indices((300, 400))
        own, row, column = i + 100, i // 128, j // 64
        first_own, last_own = (row * 128 + 100) // 64, (np.minimum(row * 128 + 128, 300) - 1 + 100) // 64
        away = np.maximum(0, np.maximum(first_own - column, column - last_own))
        by_type = [np.ones_like(i, bool), None, (column < 1) | (away < 1), (j < 5) | (abs(own - j) < 70), None]
        self.live = np.array([blocks[head, row, column] if seen is None else seen for head, seen in enumerate(by_type)])

    def sparse(self, **changes):
        made = peers.Sparse(128, 64, 1, *(x.ctypes.data for x in (self.types, self.types, self.streaming, self.streaming, self.bits, self.bits)))
        for name, value in changes.items():
            setattr(made, name, value)
        return made


def sparse_problem(tensors, o, lse, sparse, **options):
    """Of q, k, v. `sparse` must live until the program is prepared."""
    made = described(*tensors[:3], o, lse, **options)
    made.sparse = ctypes.addressof(sparse)
    return made


@pytest.mark.parametrize("causal", [False, True])
def test_a_library_with_both_passes_takes_a_sparse_mask(libraries, causal):
    library, mask = libraries[SPARSE], Mask()
    tensors = problem(1, 5, 5, 300, 400, 64)
    o, lse, made = np.empty_like(tensors[0]), np.empty((1, 5, 300), np.float32), [np.empty_like(x) for x in tensors[:3]]
    gradients_ = peers.Gradients(*(tensor(x) for x in (tensors[3], *made)))
    about = library.describe()
    for variant, given in ((about["default"], None), (about["backward"]["default"], gradients_)):
        sparse = mask.sparse()
        with library.variant(variant, sparse_problem(tensors, o, lse, sparse, causal=causal), given) as (launch, operations):
            ctypes.memset(ctypes.addressof(sparse), 0, ctypes.sizeof(sparse))  # the structure is not needed any more
            launch()
            pairs = (mask.live & np.tri(300, 400, 100, dtype=bool)).sum() if causal else mask.live.sum()
            assert operations == (10 if given else 4) * 64 * pairs
    expected = gradients(*tensors, causal=causal, live=mask.live)
    dead = np.isneginf(expected[1])
    assert dead.any() and np.isneginf(lse[dead]).all() and (o[dead] == 0).all() and (made[0][dead] == 0).all()
    lse[dead] = expected[1][dead] = 0
    assert_close([o, lse, *made], expected)


@pytest.mark.parametrize("dropout", [0, 77])
def test_tokens_of_no_sequence_see_nothing_in_a_sparse_step_either(libraries, dropout):
    library, sums = libraries[SPARSE], np.array([5, 40, 60], np.int32)
    tensors = problem(1, 2, 2, 200, 200, 64)
    for x in tensors:
        x[:, :, :5] = x[:, :, 60:] = 100
    o, lse, made = np.empty_like(tensors[0]), np.empty((1, 2, 200), np.float32), [np.empty_like(x) for x in tensors[:3]]
    about, options = library.describe(), {"sums": sums, "checked": False, "dropout": dropout, "seed": 3}
    gradients_ = peers.Gradients(*(tensor(x) for x in (tensors[3], *made)))
    for variant, given in ((about["default"], None), (about["backward"]["default"], gradients_)):
        with library.variant(variant, described(*tensors[:3], o, lse, **options), given) as (launch, _):
            launch()
    kept = mask(1, 2, 200, 200, dropout, 3).astype(float) * 256 / (256 - dropout) if dropout else np.ones((1, 2, 200, 200))
    for a, b in itertools.pairwise(sums):
        expected = gradients(*(x[:, :, a:b] for x in tensors), kept=kept[:, :, a:b, a:b])
        assert_close([x[:, :, a:b] for x in (o, lse, *made)], expected)
    for x in (o, *made):
        assert (x[:, :, :5] == 0).all() and (x[:, :, 60:] == 0).all()
    assert np.isneginf(lse[:, :, :5]).all() and np.isneginf(lse[:, :, 60:]).all()


def test_bits_are_those_of_the_launch_and_operations_are_unknown_without_the_hosts(libraries):
    mask, tensors = Mask(), problem(1, 5, 5, 300, 400, 64)
    o, lse = np.empty_like(tensors[0]), np.empty((1, 5, 300), np.float32)
    sparse = mask.sparse(block_mask_host=None)
    with libraries[SPARSE].variant("balanced", sparse_problem(tensors, o, lse, sparse)) as (launch, operations):
        assert math.isnan(operations)
        mask.bits[...] = 2**7 - 1
        launch()
    mask.live[[1, 4]] = True
    for one, right in zip((o, lse), gradients(*tensors, live=mask.live), strict=False):
        np.testing.assert_allclose(one, right, rtol=0, atol=2.0**-7)


def test_a_plan_is_made_once_and_serves_launches_until_the_mask_changes(libraries):
    library, mask, tensors = libraries[SPARSE], Mask(), problem(1, 5, 5, 300, 400, 64)
    o, lse, made = np.empty_like(tensors[0]), np.empty((1, 5, 300), np.float32), [np.empty_like(x) for x in tensors[:3]]
    gradients_ = peers.Gradients(*(tensor(x) for x in (tensors[3], *made)))
    sparse = mask.sparse(block_mask_host=None)
    before = mask.bits.copy()
    for variant, given, results in (("balanced", None, (o, lse)), ("ordered", None, (o, lse)), ("backward", gradients_, made)):
        if variant == "ordered":  # it takes no heads that stream by token
            mask.types[3], mask.live[3] = 0, True
        mask.bits[...] = before
        described_ = sparse_problem(tensors, o, lse, sparse)
        with library.variant(variant, described_, given) as (launch, _), library.variant(variant, described_, given, keep_plan=True) as (planned, _):
            launch()
            right = [x.copy() for x in results]
            mask.bits[...] = 2**7 - 1
            for _ in range(2):
                for x in results:
                    x[...] = -1
                planned()  # as the mask was
                assert all(np.array_equal(x, y) for x, y in zip(results, right, strict=True)) or variant == "backward"
                np.testing.assert_allclose(results[0], right[0], rtol=0, atol=2.0**-8)
            launch()  # as it is
            assert not np.allclose(results[0], right[0], rtol=0, atol=2.0**-4)
        if variant == "ordered":
            mask.types[3] = 3


def test_a_plan_serves_the_same_packed_sequences_at_other_addresses(libraries):
    library, sums = libraries[SPARSE], np.array([0, 140, 200], np.int32)
    tensors = problem(1, 2, 2, 200, 200, 64)
    o, lse = np.empty_like(tensors[0]), np.empty((1, 2, 200), np.float32)
    with library.variant("balanced", described(*tensors[:3], o, lse, sums=sums), keep_plan=True) as (planned, _):
        sums[1] = 10  # nobody looks at them again
        tensors[2][...] = np.flip(tensors[2], 1).copy()
        planned()
    for a, b in ((0, 140), (140, 200)):
        assert_o_and_lse([o[:, :, a:b], lse[:, :, a:b]], gradients(*(x[:, :, a:b] for x in tensors))[:2])


def test_a_variant_without_a_plan_refuses_to_make_one(libraries):
    q, k, v, _ = problem(1, 1, 1, 128, 128, 64)
    o, lse = np.empty_like(q), np.empty(q.shape[:3], np.float32)
    for step, variant in ((SPARSE, "test_per_block"), (FORWARD, "tuned")):
        with pytest.raises(RuntimeError, match="the variant makes no plan"), libraries[step].variant(variant, described(q, k, v, o, lse), keep_plan=True):
            pass
    sparse = ctypes.CDLL(str(BIN.parent / "lib" / f"libattention_{SPARSE}.so"))
    sparse.attention_prepare.restype = ctypes.c_void_p
    sparse.attention_error.restype = ctypes.c_char_p
    program = ctypes.c_void_p(sparse.attention_prepare(b"balanced", ctypes.byref(described(q, k, v, o, lse))))
    assert not sparse.attention_plan(program, None, None, None) & 1 and sparse.attention_error() == b"plan is null"
    assert not sparse.attention_launch_planned(program, None, ctypes.c_void_p(128), None, None) & 1
    assert sparse.attention_error() == b"plan does not begin at a multiple of 256 bytes"
    assert not sparse.attention_plan(None, None, None, None) & 1 and sparse.attention_error() == b"program is null"
    assert sparse.attention_plan_bytes(None) == sparse.attention_planned_scratch_bytes(None) == 0
    sparse.attention_release(program)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"block_q": 0}, "block_q is 0"),
        ({"block_k": -1}, "block_k is -1"),
        ({"block_k": 32}, "balanced does not support blocks of 32 keys"),
        ({"batches": 2}, "batches of block_mask is 2; it must be 1 or 1"),
        ({"head_type_host": None}, "head_type_host is null"),
        ({"head_type": None}, "head_type is null"),
        ({"head_type": 258}, "head_type does not begin at a multiple of 4 bytes"),
        ({"streaming_host": None}, "streaming_host is null"),
        ({"streaming": None}, "streaming is null"),
        ({"block_mask": None}, "block_mask is null"),
        ({"block_mask": 6}, "block_mask does not begin at a multiple of 4 bytes"),
    ],
)
def test_bad_sparse_masks_are_refused_with_the_reason(libraries, changes, reason):
    mask, tensors = Mask(), problem(1, 5, 5, 300, 400, 64)
    sparse = mask.sparse(**changes)
    made = sparse_problem(tensors, np.empty_like(tensors[0]), np.empty((1, 5, 300), np.float32), sparse)
    with pytest.raises(peers.Refused, match=re.escape(reason)), libraries[SPARSE].variant("balanced", made):
        pass


def test_bad_head_types_are_refused_and_so_is_a_mask_by_steps_that_take_none(libraries):
    mask, tensors = Mask(), problem(1, 5, 5, 300, 400, 64)
    sparse = mask.sparse()
    made = sparse_problem(tensors, np.empty_like(tensors[0]), np.empty((1, 5, 300), np.float32), sparse)
    with pytest.raises(peers.Refused, match="tuned does not support a sparse mask"), libraries[FORWARD].variant("tuned", made):
        pass
    mask.types[0] = 4
    with pytest.raises(peers.Refused, match="head_type is 4"), libraries[SPARSE].variant("balanced", made):
        pass


@pytest.fixture(scope="module")
def c():
    """The C functions of the forward pass as they are."""
    functions = ctypes.CDLL(str(BIN.parent / "lib" / f"libattention_{FORWARD}.so"))
    functions.attention_error.restype, functions.attention_prepare.restype = ctypes.c_char_p, ctypes.c_void_p
    functions.attention_launch.restype, functions.attention_scratch_bytes.restype = ctypes.c_bool, ctypes.c_size_t
    functions.attention_launch_on.restype, functions.attention_release.argtypes = ctypes.c_bool, [ctypes.c_void_p]
    return functions


def test_the_structures_may_go_once_a_program_is_prepared_and_there_is_no_stream(libraries, c):
    q, k, v, _ = problem(1, 1, 1, 8, 8, 32)
    o, lse = np.empty_like(q), np.empty(q.shape[:3], np.float32)
    name, made = ctypes.create_string_buffer(b"fp16"), described(q, k, v, o, lse)
    made.dtype = ctypes.cast(name, ctypes.c_char_p)
    program = ctypes.c_void_p(c.attention_prepare(b"tuned", ctypes.byref(made)))
    name.raw, made.seq_q, made.q = b"\0" * 5, 10**9, peers.Tensor()
    assert c.attention_launch(program, None, None), c.attention_error()
    np.testing.assert_array_equal(o, forward(libraries, q, k, v)[0])
    assert not c.attention_launch(program, None, ctypes.c_void_p(16)) and b"no streams" in c.attention_error()
    c.attention_release(program)


def test_a_program_may_be_launched_for_tensors_elsewhere(libraries, c, example):
    del libraries
    first = problem(1, 2, 2, 40, 40, 64)[:3]
    second = [np.flip(x, 1).copy() for x in first]
    made = [[np.empty_like(first[0]), np.empty((1, 2, 40), np.float32)] for _ in range(2)]
    for variant in (b"tuned", b"registers"):
        program = ctypes.c_void_p(c.attention_prepare(variant, ctypes.byref(described(*first, *made[0], dropout=77 * (variant == b"tuned"), seed=3))))

        def launch_on(program, *places, seed=3, **others):
            addresses = example._Addresses(*(x if isinstance(x, int) else x.ctypes.data for x in places), dropout_seed=seed, **others)
            return c.attention_launch_on(program, ctypes.byref(addresses), None, None)

        def expected(tensors, seed, variant=variant):
            kept = mask(1, 2, 40, 40, 77, seed) * (256 / 179) if variant == b"tuned" else np.ones((1, 2, 40, 40))
            return gradients(*tensors, tensors[0], kept=kept)[:2]

        assert launch_on(program, *second, *made[1]), c.attention_error()
        assert_o_and_lse(made[1], expected(second, 3))
        assert launch_on(program, *second, *made[1], seed=4), c.attention_error()
        assert_o_and_lse(made[1], expected(second, 4))
        assert c.attention_launch(program, None, None), c.attention_error()  # which the others did not change
        assert_o_and_lse(made[0], expected(first, 3))

        odd = np.empty(second[0].size + 1, np.float16)[1:].reshape(second[0].shape)  # its rows begin at odd elements
        odd[...] = second[0]
        made[1][0][...] = 0
        if variant == b"tuned":  # takes them, with another kernel
            assert launch_on(program, odd, *second[1:], *made[1]), c.attention_error()
            assert_o_and_lse(made[1], expected(second, 3))
        else:
            assert not launch_on(program, odd, *second[1:], *made[1]) and (made[1][0] == 0).all()
            assert b"registers does not support rows that begin elsewhere than at multiples of 16 bytes" in c.attention_error()
        for wrong, reason in [
            ((0, *second[1:], *made[1]), b"q is null"),
            ((*second, 0, made[1][1]), b"o is null"),
            ((*second, made[1][0], 0), b"lse is null"),
            ((second[0], 4097, second[2], *made[1]), b"k does not begin at a multiple of 2 bytes"),
        ]:
            assert not launch_on(program, *wrong) and reason in c.attention_error()
        assert not launch_on(program, *second, *made[1], cu_seqlens=4096) and b"cu_seqlens is given, and the program was prepared without" in c.attention_error()
        assert not launch_on(None, *second, *made[1]) and c.attention_error() == b"program is null"
        assert not c.attention_launch_on(program, None, None, None) and c.attention_error() == b"addresses is null"
        c.attention_release(program)


def test_sums_that_a_program_was_prepared_with_are_checked_at_each_launch(libraries, c, example):
    del libraries
    q, k, v, _ = problem(1, 2, 2, 75, 75, 32)
    o, lse, sums, others = np.empty_like(q), np.empty((1, 2, 75), np.float32), np.array([0, 20, 75], np.int32), np.array([0, 30, 75], np.int32)

    def launch_on(at, host):
        places = [None if x is None else x.ctypes.data for x in (q, k, v, o, lse, None, None, None, None, at, host)]
        return c.attention_launch_on(program, ctypes.byref(example._Addresses(*places)), None, None)

    for checked in (True, False):
        program = ctypes.c_void_p(c.attention_prepare(b"tuned", ctypes.byref(described(q, k, v, o, lse, sums=sums, checked=checked))))
        assert launch_on(sums.copy(), sums.copy()), c.attention_error()
        assert_o_and_lse([o[:, :, :20], lse[:, :, :20]], gradients(*(x[:, :, :20] for x in (q, k, v, q)))[:2])
        if checked:
            assert not launch_on(others, others) and b"cu_seqlens_host has other sums" in c.attention_error()
            assert not launch_on(sums, None) and b"cu_seqlens_host is null" in c.attention_error()
        else:
            assert launch_on(others, None), c.attention_error()
            assert_o_and_lse([o[:, :, :30], lse[:, :, :30]], gradients(*(x[:, :, :30] for x in (q, k, v, q)))[:2])
        assert not launch_on(None, None) and b"cu_seqlens is null, and the program was prepared with it" in c.attention_error()
        c.attention_release(program)


def test_null_is_refused(libraries, c):
    assert c.attention_prepare(b"tuned", None) is None and c.attention_error() == b"problem is null"
    assert c.attention_prepare(None, ctypes.byref(peers.Problem())) is None and c.attention_error() == b"variant is null"
    assert not c.attention_launch(None, None, None) and c.attention_error() == b"program is null"
    assert c.attention_scratch_bytes(None) == 0
    c.attention_release(None)


def test_each_thread_has_its_own_error(libraries, c):
    errors = {}

    def fail(dtype):
        assert c.attention_prepare(b"tuned", ctypes.byref(peers.problem_at((1, 1, 8, 32), dtype))) is None
        barrier.wait(timeout=10)
        errors[dtype] = c.attention_error().decode()

    barrier = threading.Barrier(2)
    threads = [threading.Thread(target=fail, args=(dtype,)) for dtype in ("int4", "int8")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(dtype in text for dtype, text in errors.items()) and len(errors) == 2


@pytest.fixture(scope="module")
def example():
    """examples/flashsteps_torch.py, without PyTorch: what is here needs none of its tensors."""
    torch = ModuleType("torch")
    torch.float32 = torch.float16 = torch.bfloat16 = None
    torch.autograd = SimpleNamespace(Function=object)
    before, sys.modules["torch"] = sys.modules.get("torch"), torch
    try:
        spec = importlib.util.spec_from_file_location("flashsteps_torch_alone", ROOT / "examples" / "flashsteps_torch.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        del sys.modules["torch"]
        if before is not None:
            sys.modules["torch"] = before
    return module


def options_of(example, libraries):
    del libraries  # built, and the simulator's
    return example._Library(BIN.parent / "lib" / f"libattention_{FORWARD}.so").options


RIGHT = {"causal": False, "window": 0, "scale": None, "dropout": 0.0, "dropout_seed": None, "softcap": 0.0, "alibi": 0.0}


@pytest.mark.parametrize(
    ("wrong", "kind", "reason"),
    [
        ({"causal": "no"}, TypeError, "causal is of type str; it must be True or False"),
        ({"causal": None}, TypeError, "causal is None"),
        ({"causal": 1}, TypeError, "causal is of type int"),
        ({"causal": np.ones((2, 2), bool)}, TypeError, "causal is of type ndarray; it must be True or False, and other masks are not taken"),
        ({"window": 2.0}, TypeError, "window is of type float; it must be an int"),
        ({"window": (3, 0)}, TypeError, "window is of type tuple; it must be an int"),
        ({"window": None}, TypeError, "window is None"),
        ({"window": True}, TypeError, "window is of type bool"),
        ({"window": np.array(3)}, TypeError, "window is of type ndarray"),
        ({"window": -1}, ValueError, "window is -1"),
        ({"window": 2**31}, ValueError, "window is 2147483648"),
        ({"scale": "0.3"}, TypeError, "scale is of type str; it must be a number, no tensor, or None"),
        ({"scale": 1j}, TypeError, "scale is of type complex"),
        ({"scale": True}, TypeError, "scale is of type bool"),
        ({"scale": math.nan}, ValueError, "scale is nan"),
        ({"scale": -math.inf}, ValueError, "scale is -inf"),
        ({"scale": 10**400}, ValueError, "it must be a number from −2^127 to 2^127"),
        ({"scale": 1e39}, ValueError, "scale is 1e+39"),
        ({"softcap": None}, TypeError, "softcap is None; it must be a number, no tensor"),
        ({"softcap": -1.0}, ValueError, "softcap is -1.0; it must be 0 (none) to 2^127"),
        ({"softcap": math.inf}, ValueError, "softcap is inf"),
        ({"alibi": np.array([0.5, 0.25])}, TypeError, "alibi is of type ndarray; it must be a number, no tensor"),
        ({"alibi": 1025}, ValueError, "alibi is 1025; it must be 0 (none) to 1024"),
        ({"dropout": "0.1"}, TypeError, "dropout is of type str; it must be a number, no tensor"),
        ({"dropout": np.array(0.1)}, TypeError, "dropout is of type ndarray"),
        ({"dropout": None}, TypeError, "dropout is None"),
        ({"dropout": False}, TypeError, "dropout is of type bool"),
        ({"dropout": 1.0}, ValueError, "dropout is 1.0"),
        ({"dropout": -0.1}, ValueError, "dropout is -0.1"),
        ({"dropout": math.nan}, ValueError, "dropout is nan"),
        ({"dropout": 0.001}, ValueError, "rounds to 0 of 256"),
        ({"dropout": 0.999}, ValueError, "rounds to 256 of 256"),
        ({"dropout_seed": 1.0}, TypeError, "dropout_seed is of type float; it must be an int"),
        ({"dropout_seed": True}, TypeError, "dropout_seed is of type bool"),
        ({"dropout_seed": -1}, ValueError, "dropout_seed is -1"),
        ({"dropout_seed": 2**64}, ValueError, "dropout_seed is 18446744073709551616"),
    ],
)
def test_wrong_arguments_of_the_example_are_refused_with_what_is_taken(example, libraries, wrong, kind, reason):
    with pytest.raises(kind, match=re.escape(reason)):
        example._scalars(options_of(example, libraries), RIGHT | wrong)


def test_numbers_of_numpy_are_numbers_to_the_example(example, libraries):
    rows = options_of(example, libraries)
    assert example._scalars(rows, RIGHT) == RIGHT | {"dropout": 0}
    given = {"causal": True, "window": np.int64(3), "scale": np.float32(0.5), "dropout": np.float16(0.25), "dropout_seed": np.uint64(2**64 - 1)}
    given |= {"softcap": np.float32(20), "alibi": 8}
    made = example._scalars(rows, given)
    assert made == {"causal": True, "window": 3, "scale": 0.5, "dropout": 64, "dropout_seed": 2**64 - 1, "softcap": 20, "alibi": 8}
    kinds = {"causal": bool, "window": int, "scale": float, "dropout": int, "dropout_seed": int, "softcap": float, "alibi": float}
    assert {name: type(x) for name, x in made.items()} == kinds


def choice(example, libraries, determinism, dtype=np.float16, dim=64, wanted=None, odd=False, **options):
    """The variant of the backward pass that examples/flashsteps_torch.py launches."""
    del libraries  # built, and the simulator's
    library = example._Library(BIN.parent / "lib" / f"libattention_{BACKWARD}.so")
    q = np.empty((1, 2, 20, dim + odd), dtype)[..., :dim]
    tensors = [np.empty_like(q) for _ in range(4)]
    original = described(q, *tensors[:3], np.empty((1, 2, 20), np.float32), **options)  # it keeps what the copy points to
    made = library.Problem.from_buffer_copy(original)
    given = example._Gradients.from_buffer_copy(peers.Gradients(*(tensor(x) for x in tensors)))
    return example._as_deterministic(determinism, lambda same_bits: library.prepare(made, given, wanted, same_bits))[0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("dim", [1, 16, 40, 64, 128, 256])
@pytest.mark.parametrize("odd", [False, True])
def test_the_example_chooses_a_variant_for_every_problem_and_one_with_the_same_bits_where_it_must(example, libraries, dtype, dim, odd):
    best = "recompute" if dtype == np.float32 else "tuned"
    exact = "deterministic" if dtype == np.float16 and dim in (64, 128) and not odd else "standard"
    sums = np.array([0, 5, 20], np.int32)
    for options in ({}, {"dropout": 9}, {"sums": sums}, {"sums": sums, "checked": False}, {"sums": sums, "dropout": 9}):
        expected = "recompute" if len(options) == 2 and "dropout" in options else best
        assert choice(example, libraries, None, dtype, dim, odd=odd, **options) == expected
        if not options:
            assert choice(example, libraries, "raise", dtype, dim, odd=odd) == choice(example, libraries, "warn", dtype, dim, odd=odd) == exact
            continue
        with pytest.raises(ValueError, match="use_deterministic_algorithms is on, and no variant of 06_backward .* standard does not support"):
            choice(example, libraries, "raise", dtype, dim, odd=odd, **options)
        with pytest.warns(UserWarning, match="use_deterministic_algorithms is on"):
            assert choice(example, libraries, "warn", dtype, dim, odd=odd, **options) == expected


def test_a_variant_that_is_named_is_held_to_the_same_bits_too(example, libraries):
    assert choice(example, libraries, "raise", wanted="two_kernels") == "two_kernels"
    assert choice(example, libraries, None, wanted="tuned_64") == "tuned_64"
    with pytest.raises(ValueError, match="here: tuned_64 adds in any order"):
        choice(example, libraries, "raise", wanted="tuned_64")
    with pytest.warns(UserWarning, match="tuned_64 adds in any order"):
        assert choice(example, libraries, "warn", wanted="tuned_64") == "tuned_64"


def test_the_example_keeps_256_programs_and_releases_the_others(example, libraries, monkeypatch):
    del libraries
    library = example._Library(BIN.parent / "lib" / f"libattention_{FORWARD}.so")
    released, release = [], library._c.attention_release
    monkeypatch.setattr(library._c, "attention_release", lambda program: released.append(program) or release(program))

    def program(seq):
        return library.program(0, None, (1, 1, seq, 32), (1, 1, seq, 32), ((0, 0, 32, 1),) * 4, (0,) * 5, 0, None, (), (("window", 0),), None, False)

    held = program(1)
    for seq in range(2, 301):
        program(seq)
    assert library.program.cache_info().currsize == 256 and len(set(released)) == 300 - 256 - 1
    assert program(300) is program(300) and program(1) is not held
    held_handle = held.handle
    assert held_handle not in released[: 300 - 256 - 1]  # a call may still use it
    del held
    assert held_handle in released


def test_the_description_says_which_variants_give_the_same_bits(libraries):
    same_bits = {v["name"] for v in libraries[BACKWARD].describe()["variants"] if v["deterministic"]}
    assert same_bits == {"standard", "two_kernels", "deterministic"}
    assert all(v["deterministic"] for step in (FORWARD, SPARSE) for v in libraries[step].describe()["variants"])


def test_all_sides_of_the_interface_have_the_same_fields(example, libraries):
    """peers reads the header; the example repeats it, but for the options, which it takes from the library."""
    header = (ROOT / "library" / "attention_library.h").read_text()
    fields = lambda structure: {name: (getattr(structure, name).offset, getattr(structure, name).size) for name, _ in structure._fields_}
    of_header = peers._structures()
    assert all(of_header[name]._fields_ for name in ("Tensor", "Sparse", "Problem", "Gradients", "Addresses"))
    for path in (BIN.parent / "lib").glob("libattention_*.so"):
        problem, options = example._Library(path).Problem, peers.Library(path).describe()["options"]
        assert fields(problem) == fields(peers.Problem) and ctypes.sizeof(problem) == ctypes.sizeof(peers.Problem)
        assert {row["name"]: row["offset"] for row in options} == {row["name"]: fields(peers.Problem)[row["name"]][0] for row in options}
    for name in ("Tensor", "Gradients", "Addresses"):
        assert fields(getattr(example, f"_{name}")) == fields(of_header[name])
    for function in ("describe", "prepare", "prepare_backward", "scratch_bytes", "operations", "launch", "launch_on", "plan_bytes", "plan",
                     "planned_scratch_bytes", "launch_planned", "release", "error"):
        assert re.search(rf"\battention_{function}\(", header)


def test_every_option_has_its_argument_in_python_and_its_place_in_the_schema(libraries):
    rows = libraries[FORWARD].describe()["options"]
    tree = ast.parse((ROOT / "examples" / "flashsteps_torch.py").read_text())
    schema = json.loads((ROOT / "docs" / "result.schema.json").read_text())["$defs"]["attention"]["properties"]
    for name, without in (("attention", set()), ("attention_varlen", {"softcap", "alibi"})):  # of which no step has packed sequences
        arguments = next(f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == name).args.kwonlyargs
        assert {row["name"] for row in rows} - without <= {argument.arg for argument in arguments}
    assert {row["name"] for row in rows} - set(schema) == {"dropout_seed"}, "which is in dropout's entry"


def test_a_c_compiler_reads_the_header_as_the_ctypes_structures_do(tmp_path):
    names = [f for f, _ in peers.Problem._fields_]
    prints = "".join(f'printf("%zu ", offsetof(struct AttentionProblem, {name}));' for name in names)
    (tmp_path / "offsets.c").write_text(
        f'#include <stdio.h>\n#include "library/attention_library.h"\nint main(void) {{ {prints} printf("%zu", sizeof(struct AttentionProblem)); }}\n')
    subprocess.run([cxx(), "-xc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I", ROOT, tmp_path / "offsets.c", "-o", tmp_path / "offsets"], check=True)
    found = subprocess.run([tmp_path / "offsets"], capture_output=True, text=True, check=True).stdout.split()
    assert [int(x) for x in found] == [*(getattr(peers.Problem, name).offset for name in names), ctypes.sizeof(peers.Problem)]


# ---- linear layers: library/linear_library.h ----

LINEAR_TYPES = {np.float32: b"fp32", np.float16: b"fp16", np.uint16: b"bf16"}  # bf16 by its bits
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


@pytest.fixture(scope="module")
def linear_c(libraries):
    """The C functions as they are."""
    del libraries  # the simulator's
    functions = ctypes.CDLL(str(BIN.parent / "lib" / "liblinear_08_few_tokens.so"))
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    for name, result, arguments in [
        ("describe", text, []), ("prepare", pointer, [text, pointer]), ("variant", text, [pointer]), ("scratch_bytes", ctypes.c_size_t, [pointer]),
        ("operations", ctypes.c_double, [pointer]), ("launch", ctypes.c_bool, [pointer] * 3), ("launch_on", ctypes.c_bool, [pointer] * 4),
        ("release", None, [pointer]), ("error", text, []),
    ]:  # fmt: skip
        function = getattr(functions, f"linear_{name}")
        function.restype, function.argtypes = result, arguments
    return functions


def bits_of_bf16(x):
    """Rounded towards zero."""
    return (np.asarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def values(x):
    return (x.astype(np.uint32) << 16).view(np.float32).astype(float) if x.dtype == np.uint16 else x.astype(float)


def random(shape, dtype, seed):
    x = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return bits_of_bf16(x) if dtype == np.uint16 else x.astype(dtype)


def linear_problem(example, a, b, c, bias=None, ids=None, routing=None, activation=None, **others):
    """a [samples, channels, m, k], b [weight_samples, weight_channels, n, k], c [samples, channels, m, n]."""
    made = [example._LinearTensor(x.ctypes.data, *(s // x.itemsize for s in x.strides[:3])) for x in (a, b, c)]
    at = [None if x is None else x.ctypes.data for x in (bias, ids, routing)]
    samples, channels, m, k = a.shape
    fields = {
        "samples": samples, "channels": channels, "weight_samples": b.shape[0], "weight_channels": b.shape[1], "m": m, "n": b.shape[2], "k": k,
        "experts": 0 if ids is None else b.shape[1], "top": 0 if ids is None else ids.shape[1],
        **dict(zip(("dtype_a", "dtype", "dtype_c"), (LINEAR_TYPES[x.dtype.type] for x in (a, b, c)), strict=True)),
        "activation": activation and activation.encode(), **dict(zip("abc", made, strict=True)), "bias": at[0], "expert_ids": at[1], "routing": at[2],
    }  # fmt: skip
    return example._LinearProblem(**fields | others)


def linear(linear_c, example, *arrays, variant=None, **others):
    """The name of the variant that served."""
    program = linear_c.linear_prepare(variant, ctypes.byref(linear_problem(example, *arrays, **others)))
    assert program, linear_c.linear_error()
    try:
        assert linear_c.linear_launch(program, None, None), linear_c.linear_error()
        return linear_c.linear_variant(program).decode()
    finally:
        linear_c.linear_release(program)


def right_linear(a, b, bias=None, activation="none"):
    """In double precision; a's batch may be a multiple of b's."""
    a, b = values(a), values(b)
    b = b.repeat(a.shape[0] // b.shape[0], 0).repeat(a.shape[1] // b.shape[1], 1)
    c = a @ b.swapaxes(2, 3)
    if bias is not None:
        bias = values(bias)
        c += bias.repeat(a.shape[0] // bias.shape[0], 0).repeat(a.shape[1] // bias.shape[1], 1)[:, :, None]
    return ACTIVATIONS[activation](c)


def assert_product(c, right):
    assert np.isfinite(values(c)).all()
    relative = {np.float32: 1e-5, np.float16: 2.0**-10, np.uint16: 2.0**-7}[c.dtype.type]
    np.testing.assert_allclose(values(c), right, rtol=relative, atol=relative * abs(right).max())


@pytest.mark.parametrize(
    ("dtype_a", "dtype", "dtype_c", "m", "activation"),
    [(np.float16, np.float16, np.float16, 1, "none"), (np.uint16, np.uint16, np.float32, 7, "gelu"), (np.float16, np.float16, np.uint16, 16, "silu"),
     (np.float32, np.float16, np.float32, 5, "relu"), (np.float32, np.uint16, np.uint16, 2, "silu")],
)  # fmt: skip
def test_a_linear_layer_is_right_in_every_type(linear_c, example, dtype_a, dtype, dtype_c, m, activation):
    a, b, bias = random((2, 4, m, 192), dtype_a, 1), random((1, 2, 33, 192), dtype, 2), random((1, 2, 33), dtype, 3)
    c = np.empty((2, 4, m, 33), dtype_c)
    if dtype_a == np.float32:  # tokens are rounded to the weights' type: these already are
        a = values(random(a.shape, dtype, 1)).astype(np.float32)
    assert linear(linear_c, example, a, b, c, bias, activation=activation) == "tuned_alone"
    assert_product(c, right_linear(a, b, bias, activation))


def test_the_default_is_the_best_variant_that_takes_a_problem(linear_c, example):
    def served(k=128, odd=0, **others):
        a, c = np.zeros((1, 1, 2, k + 8), np.float16)[..., odd : odd + k], np.zeros((1, 1, 2, 8), np.float16)
        return linear(linear_c, example, a, np.zeros((1, 1, 8, k), np.float16), c, **others)

    assert served() == "tuned_alone", "which does not read weights before the launch before has ended"
    assert served(constant_weights=1) == "tuned"
    assert served(variant=b"ring") == "ring"
    assert served(k=100) == served(k=100, constant_weights=1) == served(odd=1) == "warp_per_row"


def test_rows_of_a_linear_layer_may_lie_anywhere_and_what_lies_between_them_stays(linear_c, example):
    a_room, b_room, c_room = random((3, 9, 2, 80), np.float16, 1), random((20, 81), np.float16, 2), np.full((5, 2, 3, 27), 7, np.float16)
    a, b, c = a_room[:, 1::2, :, 3:67].transpose(2, 0, 1, 3), b_room[None, None, :, 9:73], c_room[:4, :, :, 1:21].transpose(1, 2, 0, 3)
    assert a.shape == (2, 3, 4, 64) and c.shape == (2, 3, 4, 20)
    assert linear(linear_c, example, a, b, c) == "warp_per_row"
    assert_product(c, right_linear(a, b))
    assert (c_room[4] == 7).all() and (c_room[..., 0] == 7).all() and (c_room[..., 21:] == 7).all()
    one = np.broadcast_to(a[:1, :1], (2, 3, 4, 64))  # strides of 0
    linear(linear_c, example, one, b, c)
    assert_product(c, right_linear(one, b))


@pytest.mark.parametrize("dtype", [np.float16, np.uint16])
@pytest.mark.parametrize("variant", [None, b"experts_unsorted", b"experts_tiled"])
def test_a_routed_product_is_right_and_ids_of_no_expert_add_nothing(linear_c, example, dtype, variant):
    a, b, bias = random((1, 1, 40, 128), dtype, 1), random((1, 6, 50, 128), dtype, 2), random((1, 6, 50), dtype, 3)
    generator = np.random.default_rng(4)
    ids = np.stack([generator.permutation(6)[:3] for _ in range(40)]).astype(np.int32)
    ids[3], ids[17, 1], ids[20, 2] = [6, -1, 2**31 - 1], -(2**31), 6
    routing = generator.random((40, 3), np.float32)
    c = np.empty((1, 1, 40, 50), np.float32)
    served = linear(linear_c, example, a, b, c, bias, ids, routing, activation="silu", variant=variant)
    assert served == (variant or b"experts").decode()
    of_expert = right_linear(np.broadcast_to(a, (1, 6, 40, 128)), b, bias, "silu")[0]
    right = sum(np.where(((ids[:, s] >= 0) & (ids[:, s] < 6))[:, None], routing[:, s, None] * of_expert[ids[:, s] % 6, range(40)], 0) for s in range(3))
    assert_product(c[0, 0], right)
    assert (c[0, 0, 3] == 0).all()


def test_a_linear_program_may_be_launched_for_arrays_elsewhere(linear_c, example):
    a, b, bias, c = random((1, 1, 3, 64), np.float16, 1), random((1, 1, 9, 64), np.float16, 2), random((1, 1, 9), np.float16, 3), np.zeros((1, 1, 3, 9), np.float16)
    program = linear_c.linear_prepare(None, ctypes.byref(linear_problem(example, a, b, c, bias)))
    assert program, linear_c.linear_error()
    others, made = [np.flip(x, -1).copy() for x in (a, b, bias)], np.empty_like(c)

    def launch_on(*places):
        at = [x if x is None or isinstance(x, int) else x.ctypes.data for x in places]
        return linear_c.linear_launch_on(program, ctypes.byref(example._LinearAddresses(*at)), None, None)

    assert launch_on(*others, made), linear_c.linear_error()
    assert_product(made, right_linear(*others))
    assert (c == 0).all()
    assert linear_c.linear_launch(program, None, None)
    assert_product(c, right_linear(a, b, bias))
    assert linear_c.linear_operations(program) == 2 * 3 * 9 * 64
    odd = np.empty(a.size + 1, np.float16)[1:].reshape(a.shape)
    for places, reason in [
        ((0, b, bias, c), b"a is null"),
        ((a, b, bias, None), b"c is null"),
        ((a, 4097, bias, c), b"b does not begin at a multiple of 2 bytes"),
        ((a, b, None, c), b"bias is null, and the program was prepared with it"),
        ((odd, b, bias, c), b"tuned_alone does not support rows of A that begin elsewhere than at multiples of 16 bytes"),
        ((a, b, bias, c, 4096, None), b"expert_ids is given, and experts is 0"),
    ]:
        assert not launch_on(*places) and reason in linear_c.linear_error()
    assert not linear_c.linear_launch(program, None, 16) and b"no streams" in linear_c.linear_error()
    assert not linear_c.linear_launch_on(program, None, None, None) and linear_c.linear_error() == b"addresses is null"
    assert not linear_c.linear_launch(None, None, None) and linear_c.linear_error() == b"program is null"
    linear_c.linear_release(program)
    linear_c.linear_release(None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"m": 17, "samples": 1, "channels": 1, "weight_samples": 1, "weight_channels": 1}, "tuned_alone does not support m 17; it supports fp16, bf16; tokens of that type or fp32; m up to 16"),
        ({"m": 0}, "m is 0; it must be 1 or more"),
        ({"weight_channels": 3}, "weight_channels is 3; it must divide channels, 4, without a rest"),
        ({"dtype": b"fp32"}, "dtype is fp32; weights must be fp16 or bf16"),
        ({"dtype": b"int8"}, "dtype is 'int8', which is none of fp32, fp16, bf16"),
        ({"dtype_a": b"bf16"}, "dtype_a is bf16; tokens must be fp32 or of the weights' type, fp16"),
        ({"activation": b"tanh"}, "activation is 'tanh', which is none of none, relu, gelu, silu"),
        ({"device": 1}, "device is 1"),
        ({"bias": 4097}, "bias does not begin at a multiple of 2 bytes"),
        ({"top": 2}, "top is 2; without experts it must be 0"),
        ({"routing": 4096}, "routing is given, and experts is 0"),
        ({"a": (0, 1, 1, 1)}, "a is null"),
        ({"b": (4096, -1, 1, 1)}, "b has a negative stride"),
        ({"c": (4096, 1000, 1000, 7)}, "c has rows that overlap (a stride of 7 where 8 elements lie)"),
        ({"a": (4096, 1 << 62, 1, 1)}, "a has strides beyond 2^62 bytes"),
        ({"samples": 1, "channels": 1, "weight_samples": 1, "weight_channels": 4, "experts": 4, "top": 2}, "expert_ids is null"),
    ],
)
def test_bad_linear_problems_are_refused_with_the_reason(linear_c, example, changes, reason):
    a, b, c = np.zeros((2, 4, 3, 64), np.float16), np.zeros((2, 4, 8, 64), np.float16), np.zeros((2, 4, 3, 8), np.float16)
    made = linear_problem(example, a, b, c)
    for name, value in changes.items():
        setattr(made, name, example._LinearTensor(*value) if isinstance(value, tuple) else value)
    assert linear_c.linear_prepare(None, ctypes.byref(made)) is None and reason in linear_c.linear_error().decode()


def test_variants_of_linear_layers_are_refused_by_name(linear_c, example):
    a, b, c = np.zeros((1, 1, 3, 64), np.float16), np.zeros((1, 4, 8, 64), np.float16), np.zeros((1, 1, 3, 8), np.float16)
    ids, routing = np.zeros((3, 2), np.int32), np.zeros((3, 2), np.float32)
    routed = linear_problem(example, a, b, c, None, ids, routing)
    for variant, made, reason in [
        (b"ring", routed, "ring does not support experts 4"),
        (b"experts", linear_problem(example, a, b[:, :1], c), "experts does not support a product without experts"),
        (b"best", routed, "08_few_tokens has no variant 'best'"),
        (None, linear_problem(example, a[..., :60], b[..., :60], c, None, ids, routing), "experts does not support k 60"),
    ]:
        assert linear_c.linear_prepare(variant, ctypes.byref(made)) is None and reason in linear_c.linear_error().decode()
    assert linear_c.linear_prepare(None, None) is None and linear_c.linear_error() == b"problem is null"
    described = json.loads(linear_c.linear_describe())
    assert described["step"] == "08_few_tokens" and {"tuned_alone", "experts"} <= {v["name"] for v in described["variants"]}


C_PROGRAM = r"""
#include <stdio.h>
#include "library/linear_library.h"

int main(void) {
  // [[1, 2, 3], [4, 5, 6]] · [[1, 0, 1], [0, 2, 0]]ᵀ − [[1, 0]] in fp32, with weights in bf16
  float a[2][3] = {{1, 2, 3}, {4, 5, 6}}, c[2][2];
  uint16_t b[2][3] = {{0x3f80, 0, 0x3f80}, {0, 0x4000, 0}}, bias[2] = {0xbf80, 0};
  struct LinearProblem p = {.samples = 1, .channels = 1, .m = 2, .n = 2, .k = 3, .dtype = "bf16", .dtype_a = "fp32", .dtype_c = "fp32",
                            .a = {a, 0, 0, 3}, .b = {b, 0, 0, 3}, .c = {c, 0, 0, 2}, .bias = bias};
  struct LinearProgram* program = linear_prepare(NULL, &p);
  if (!program || !linear_launch(program, NULL, NULL)) return printf("%s\n", linear_error()), 1;
  printf("%s %g %g %g %g\n", linear_variant(program), c[0][0], c[0][1], c[1][0], c[1][1]);
  linear_release(program);
  return 0;
}
"""


def test_a_program_in_c_calls_the_linear_library(libraries, tmp_path):
    del libraries  # the simulator's
    (tmp_path / "user.c").write_text(C_PROGRAM)
    lib = BIN.parent / "lib"
    subprocess.run([cxx(), "-xc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I", ROOT, tmp_path / "user.c", "-o", tmp_path / "user",
                    "-L", lib, "-llinear_08_few_tokens", f"-Wl,-rpath,{lib}"], check=True)  # fmt: skip
    assert subprocess.run([tmp_path / "user"], capture_output=True, text=True, check=True).stdout == "warp_per_row 3 4 9 10\n"


def test_a_c_compiler_reads_the_linear_header_as_the_example_does(example, tmp_path):
    structures = {"LinearTensor": example._LinearTensor, "LinearProblem": example._LinearProblem, "LinearAddresses": example._LinearAddresses}
    prints, expected = "", []
    for name, structure in structures.items():
        prints += "".join(f'printf("%zu ", offsetof(struct {name}, {field}));' for field, _ in structure._fields_) + f'printf("%zu ", sizeof(struct {name}));'
        expected += [*(getattr(structure, field).offset for field, _ in structure._fields_), ctypes.sizeof(structure)]
    (tmp_path / "offsets.c").write_text(f'#include <stdio.h>\n#include "library/linear_library.h"\nint main(void) {{ {prints} }}\n')
    subprocess.run([cxx(), "-xc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I", ROOT, tmp_path / "offsets.c", "-o", tmp_path / "offsets"], check=True)
    found = subprocess.run([tmp_path / "offsets"], capture_output=True, text=True, check=False).stdout.split()
    assert [int(x) for x in found] == expected


def test_numbers_and_types_of_a_linear_problem_are_flags_of_the_command_line(example):
    text = subprocess.run([BIN / "08_few_tokens", "--help"], capture_output=True, text=True, check=True).stdout
    flags = {flag.replace("-", "_") for flag in re.findall(r"--([a-z-]+)", text)}
    fields = {name for name, type_ in example._LinearProblem._fields_ if type_ in (ctypes.c_int, ctypes.c_char_p)}
    assert fields - flags == {"device", "constant_weights"}
