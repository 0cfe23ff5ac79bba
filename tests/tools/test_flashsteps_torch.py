"""examples/flashsteps_torch.py beside PyTorch in double precision: on the GPU where PyTorch sees one and FLASHSTEPS_BIN is the gpu
build's, else on the simulator. Without PyTorch, which the project does not install, all are skipped.
"""

import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import BIN, ROOT

try:
    import torch
except ImportError:
    torch = None

ON_GPU = "sim" not in BIN.parent.name
MISSING = (
    "this Python has no PyTorch, which examples/flashsteps_torch.py is for" if torch is None
    else "PyTorch sees no GPU, and the libraries are of the gpu build" if ON_GPU and not torch.cuda.is_available()
    else ""
)
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
os.environ["FLASHSTEPS_LIB" if ON_GPU else "FLASHSTEPS_SIM_LIB"] = str(BIN.parent / "lib")
DEVICE = "cuda" if ON_GPU else "cpu"
needs_gpu = pytest.mark.skipif(not ON_GPU, reason="a CPU has no streams and no graphs")

sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests" / "cli")]

if torch is not None:
    from flashsteps_torch import attention, attention_varlen, linear, routed_linear
    from test_cli_dropout import mask


def randn(*shape, dtype=None, seed=1):
    """Of fp16, or of another type."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(DEVICE, dtype or torch.float16)


def exact(q, k, v, causal=False, window=0, scale=None, kept=None):
    """In double precision; heads may share keys; `kept`: what dropout multiplies P by."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    s = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    own = torch.arange(s.shape[2], device=s.device)[:, None] + s.shape[3] - s.shape[2]
    j = torch.arange(s.shape[3], device=s.device)
    if causal:
        s = s.masked_fill(j > own, -math.inf)
    if window:
        s = s.masked_fill((own - j).abs() >= window, -math.inf)
    p = s.softmax(-1)
    return (p if kept is None else p * kept) @ v


def with_gradients(o, inputs, dtype):
    """O and the gradients of its product with random numbers."""
    d_o = randn(*o.shape, dtype=dtype, seed=9).to(o.dtype)
    return [o, *torch.autograd.grad(o, inputs, d_o, retain_graph=True)]


def assert_alike(made, right, dtype):
    tolerance = {torch.float32: 1e-5, torch.float16: 2**-8, torch.bfloat16: 2**-5}[dtype]
    for one, other in zip(made, right, strict=True):
        assert one.dtype == dtype and one.shape == other.shape
        assert (one.double() - other).abs().max() <= tolerance * other.abs().max()


def assert_like_exact(made, expected, inputs, dtype):
    assert_alike(with_gradients(made, inputs, dtype), with_gradients(expected, inputs, dtype), dtype)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("options", "kv_heads", "dim"),
    [({}, 2, 64), ({"causal": True}, 1, 128), ({"window": 20, "scale": -0.3}, 2, 40)],
)
def test_output_and_gradients_are_right(name, options, kv_heads, dim):
    dtype = getattr(torch, name)
    q, k, v = randn(2, 2, 50, dim, dtype=dtype), randn(2, kv_heads, 70, dim, dtype=dtype, seed=2), randn(2, kv_heads, 70, dim, dtype=dtype, seed=3)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    assert_like_exact(attention(*inputs, **options), exact(*inputs, **options), inputs, dtype)


def test_tensors_may_have_any_strides():
    qkv = randn(2, 30, 3, 2, 33)  # tokens first, all three in one tensor, rows at odd elements
    views = [qkv[:, :, n, :, 1:].transpose(1, 2) for n in range(3)]
    assert torch.equal(attention(*views, variant="any_dim"), attention(*(x.contiguous() for x in views), variant="any_dim"))
    packed_rows = randn(2, 30, 2, 32).transpose(1, 2)
    o = attention(packed_rows, packed_rows, packed_rows)
    assert o.stride() == packed_rows.stride()  # tokens first, as q: the next layer need not copy
    one_key = randn(1, 1, 1, 32).expand(2, 2, 30, 32)
    assert torch.equal(attention(packed_rows, one_key, one_key), one_key)
    by_columns = randn(2, 2, 32, 30).mT  # elements of a row lie apart
    assert torch.equal(attention(by_columns, by_columns, by_columns), attention(*[by_columns.contiguous()] * 3))


def test_the_gradient_of_a_sum_comes_expanded_and_is_taken():
    q, k, v = (randn(1, 1, 20, 32, seed=n).requires_grad_() for n in range(3))
    made = torch.autograd.grad(attention(q, k, v).sum(), (q, k, v))
    right = torch.autograd.grad(exact(q, k, v).sum(), (q, k, v))
    assert (made[2] - right[2]).abs().max() < 1e-2


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradcheck(dropout):
    shape = (1, 2, 20, 16) if ON_GPU else (1, 1, 3, 4)
    inputs = [randn(*shape, dtype=torch.float32, seed=n).requires_grad_() for n in range(3)]

    def function(*x):
        return attention(*x, causal=True, dropout=dropout, dropout_seed=5)

    with pytest.warns(UserWarning, match="not a double precision"):  # fp32 is what these kernels have
        assert torch.autograd.gradcheck(function, inputs, eps=1e-2, atol=1e-2, rtol=1e-2, nondet_tol=1e-5)


@pytest.mark.parametrize("where", ["cpu", DEVICE])
@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_packed_sequences(where, dropout):
    sums = torch.tensor([0, 20, 20, 75], dtype=torch.int32, device=where)
    inputs = [randn(75, 2, 32, seed=n).requires_grad_() for n in range(3)]
    o = attention_varlen(*inputs, sums, causal=True, dropout=dropout, dropout_seed=3)
    assert o.is_contiguous()
    kept = torch.tensor(mask(1, 2, 75, 75, 64, 3), device=DEVICE) / 0.75 if dropout else torch.ones(1, 2, 75, 75, device=DEVICE)
    expected = torch.cat([
        exact(*(x[a:b].transpose(0, 1)[None] for x in inputs), causal=True, kept=kept[:, :, a:b, a:b])[0].transpose(0, 1)
        for a, b in ((0, 20), (20, 75))
    ])
    assert_like_exact(o, expected, inputs, torch.float16)


@pytest.mark.parametrize("dim", [64, 128, 24])
def test_dropout_has_the_mask_of_its_seed(dim):
    inputs = [randn(2, 2, 40, dim, seed=n).requires_grad_() for n in range(3)]
    kept = torch.tensor(mask(2, 2, 40, 40, 51, 7), device=DEVICE).double() * (256 / 205)
    assert_like_exact(attention(*inputs, dropout=0.2, dropout_seed=7), exact(*inputs, kept=kept), inputs, torch.float16)


def test_without_a_seed_dropout_follows_manual_seed():
    q, k, v = (randn(1, 1, 40, 32, seed=n) for n in range(3))
    made = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        made.append(attention(q, k, v, dropout=0.5))
    assert torch.equal(made[0], made[1]) and not torch.equal(made[0], made[2])


def with_scores(q, k, v, causal=False, window=0, scale=None, softcap=0.0, alibi=0.0, bias=None, sinks=None, lengths=None):
    """In double precision, for heads that are a power of two."""
    heads, seq_q, (_, _, seq_k, _) = q.shape[1], q.shape[2], k.shape
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(heads // k.shape[1], 1) for x in (k, v))
    s = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    s = softcap * (s / softcap).tanh() if softcap else s
    s = s if bias is None else s + bias.double()
    j = torch.arange(seq_k, device=s.device)
    keys = torch.full((q.shape[0], 1, 1, 1), seq_k, device=s.device) if lengths is None else lengths.to(s.device).clamp(0, seq_k).view(-1, 1, 1, 1)
    distance = torch.arange(seq_q, device=s.device)[:, None] + keys - seq_q - j
    s = s - 2.0 ** (-alibi * (torch.arange(heads, device=s.device).view(-1, 1, 1) + 1) / heads) * distance.abs() if alibi else s
    hidden = (j >= keys) | (causal & (distance < 0)) | ((window > 0) & (distance.abs() >= window))
    s = s.masked_fill(hidden, -math.inf)
    logits = s if sinks is None else torch.cat([s, sinks.double().view(-1, 1, 1).expand(*s.shape[:3], 1)], -1)
    return logits.softmax(-1).nan_to_num()[..., :seq_k] @ v.masked_fill((j >= keys).mT, 0)


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


def varlen(q, cu_seqlens, **options):
    return attention_varlen(*[q[0].transpose(0, 1)] * 3, cu_seqlens, **options)


SCORES = {
    "softcap": lambda _: {"softcap": 0.7},
    "alibi": lambda _: {"alibi": 8, "causal": True},
    "bias": lambda dtype: {"bias": randn(3, 4, 2, 90, dtype=dtype, seed=5)},
    "sinks": lambda _: {"sinks": randn(4, dtype=torch.float32, seed=6)},
    "lengths": lambda _: {"lengths": int32(33, 90, 0).to(DEVICE)},
    "all": lambda dtype: {"softcap": 3, "alibi": 6.0, "bias": randn(1, 4, 1, 90, dtype=dtype, seed=5), "sinks": randn(4, dtype=torch.float32, seed=6),
                          "lengths": int32(33, 90, 0), "causal": True, "window": 80, "scale": 0.3},
}  # fmt: skip


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize(("dtype", "dim"), [("float16", 64), ("bfloat16", 128), ("float32", 40)])
def test_options_of_scores_are_right(name, dtype, dim):
    dtype = getattr(torch, dtype)
    q, k, v = randn(3, 4, 2, dim, dtype=dtype), randn(3, 2, 90, dim, dtype=dtype, seed=2), randn(3, 2, 90, dim, dtype=dtype, seed=3)
    options = SCORES[name](dtype)
    assert_alike([attention(q, k, v, **options)], [with_scores(q, k, v, **options)], dtype)


def test_an_expanded_bias_is_not_copied_and_any_bias_is_taken(monkeypatch):
    import flashsteps_torch

    seen, run = [], flashsteps_torch._run
    monkeypatch.setattr(flashsteps_torch, "_run", lambda *a, **b: seen.append(b["scores"].bias) or run(*a, **b))
    q, k, v = randn(3, 4, 2, 64), randn(3, 4, 90, 64, seed=2), randn(3, 4, 90, 64, seed=3)
    for bias, copied in [
        (randn(90, seed=5), False),
        (randn(2, 90, seed=5), False),
        (randn(4, 1, 90, seed=5), False),
        (randn(3, 1, 1, 90, seed=5).expand(3, 4, 2, 90), False),
        (randn(3, 4, 2, 97, seed=5)[..., 7:], False),
        (randn(2, 3, 4, 90, seed=5).permute(1, 2, 0, 3), False),
        (randn(3, 4, 90, 2, seed=5).mT, True),  # keys lie apart
        (randn(3, 1, 2, 1, seed=5).expand(3, 4, 2, 90), True),  # the same for all keys
        (randn(1, seed=5)[0], True),
    ]:
        assert_alike([attention(q, k, v, bias=bias)], [with_scores(q, k, v, bias=bias)], torch.float16)
        assert (seen[-1].data_ptr() != bias.data_ptr()) == copied
        assert seen[-1].untyped_storage().nbytes() <= max(bias.untyped_storage().nbytes(), 3 * 2 * 90 * 2)


def test_one_program_serves_all_lengths(kept):
    q, k, v = randn(2, 4, 1, 64), randn(2, 2, 90, 64, seed=2), randn(2, 2, 90, 64, seed=3)
    for values in ((1, 90), (2, 89), (50, 0)):
        lengths = int32(*values)
        assert_alike([attention(q, k, v, lengths=lengths)], [with_scores(q, k, v, lengths=lengths)], torch.float16)
    with pytest.raises(ValueError, match="lengths holds 91; it must be from 0 to seq_k, 90"):
        attention(q, k, v, lengths=int32(91, 0))
    assert len(kept) == 1


def test_gradients_of_calls_with_options_of_scores_are_refused_before_the_forward_pass(monkeypatch):
    import flashsteps_torch

    q, k, v = randn(3, 4, 2, 64), randn(3, 2, 90, 64, seed=2), randn(3, 2, 90, 64, seed=3)
    for name, make in SCORES.items():
        options = make(torch.float16)
        with torch.no_grad():
            attention(q.requires_grad_(), k, v, **options)
        with torch.inference_mode():
            attention(q, k, v, **options)
        with monkeypatch.context() as patch:
            patch.setattr(flashsteps_torch._Library, "run", lambda *_: pytest.fail("a kernel was launched"))
            with pytest.raises(ValueError, match=f"attention with .*{'softcap, alibi, bias, sinks, lengths' if name == 'all' else name}.* has no gradients"):
                attention(q, k, v, **options)
        q.requires_grad_(False)
    for name in ("bias", "sinks"):
        with pytest.raises(ValueError, match=f"attention with {name} has no gradients"):
            attention(q, k, v, **{name: SCORES[name](torch.float16)[name].requires_grad_()})


def test_autocast_chooses_the_type_of_a_bias():
    q, k, v, bias = randn(1, 4, 2, 64, dtype=torch.float32), *(randn(1, 4, 90, 64, dtype=torch.float32, seed=n) for n in (2, 3)), randn(90, dtype=torch.float32)
    with torch.autocast(DEVICE, torch.bfloat16):
        o = attention(q, k, v, bias=bias)
    assert_alike([o], [with_scores(*(x.bfloat16() for x in (q, k, v)), bias=bias.bfloat16())], torch.bfloat16)


@pytest.mark.parametrize(
    ("change", "kind", "reason"),
    [
        (lambda q: attention(q, q, q, softcap=torch.tensor(3.0)), TypeError, "softcap is of type Tensor; it must be a number, no tensor"),
        (lambda q: attention(q, q, q, softcap=-1.0), ValueError, "softcap is -1.0; it must be 0"),
        (lambda q: attention(q, q, q, softcap=None), TypeError, "softcap is None"),
        (lambda q: attention(q, q, q, softcap=False), TypeError, "softcap is of type bool"),
        (lambda q: attention(q, q, q, alibi=torch.ones(2)), TypeError, "alibi is of type Tensor; it must be a number, no tensor"),
        (lambda q: attention(q, q, q, alibi=2000), ValueError, "alibi is 2000; it must be 0"),
        (lambda q: attention(q, q, q, alibi_slopes=torch.ones(2)), TypeError, "alibi_slopes"),
        (lambda q: attention(q, q, q, bias=[0.0]), TypeError, "bias is of type list; it must be a torch.Tensor"),
        (lambda q: attention(q, q, q, bias=torch.zeros(9)), ValueError, "bias is torch.float32 on .*, q is torch.float16 on .*; they must be alike"),
        (lambda q: attention(q, q, q, bias=torch.ones(9, 9).bool()), ValueError, "bias is torch.bool"),
        (lambda q: attention(q, q, q, bias=q[0, 0]), ValueError, r"bias is \[9, 32\]; it must be broadcastable to \[batch, heads, seq_q, seq_k\], \[1, 2, 9, 9\]"),
        (lambda q: attention(q, q, q, bias=q.new_zeros(1, 1, 1, 9, 9)), ValueError, "bias is .*; it must be broadcastable"),
        (lambda q: attention(q, q, q, bias=q.new_zeros(9).to_sparse()), ValueError, "bias is torch.sparse_coo; it must be dense"),
        (lambda q: attention(q, q, q, bias=q.new_zeros(9, device="meta")), ValueError, "bias is torch.float16 on meta"),
        (lambda q: attention(q, q, q, sinks=q.new_zeros(2)), ValueError, r"sinks is torch.float16 \[2\]; it must be torch.float32 \[heads\], which is \[2\]"),
        (lambda q: attention(q, q, q, sinks=torch.zeros(3)), ValueError, r"sinks is torch.float32 \[3\]"),
        (lambda q: attention(q, q, q, sinks=torch.zeros(2, device="meta")), ValueError, "sinks is on meta"),
        (lambda q: attention(q, q, q, sinks=0.5), TypeError, "sinks is of type float; it must be a torch.Tensor"),
        (lambda q: attention(q, q, q, lengths=torch.tensor([9])), ValueError, r"lengths is torch.int64 \[1\]; it must be torch.int32 \[batch\], which is \[1\]"),
        (lambda q: attention(q, q, q, lengths=int32(9, 9)), ValueError, r"lengths is torch.int32 \[2\]"),
        (lambda q: attention(q, q, q, lengths=[9]), TypeError, "lengths is of type list; it must be a torch.Tensor"),
        (lambda q: attention(q, q, q, lengths=int32(9).to("meta")), ValueError, "lengths is on meta; it must be on the CPU"),
        (lambda q: attention(q, q, q, lengths=int32(10)), ValueError, "lengths holds 10; it must be from 0 to seq_k, 9"),
        (lambda q: attention(q, q, q, lengths=int32(9)._neg_view()), ValueError, "lengths holds -9; it must be from 0 to seq_k, 9"),
        (lambda q: attention(q, q, q, softcap=3, dropout=0.5), ValueError, "does not support dropout"),
        (lambda q: attention(q, q, q, softcap=3, variant="lazy_rescale"), ValueError, "09_decoding has no variant 'lazy_rescale'"),
        (lambda q: attention(q, q, q, softcap=3, variant="cluster"), ValueError, "cluster does not support .*"),
        (lambda q: varlen(q, int32(0, 9), softcap=3), TypeError, "softcap"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*(prototype|beta)")
def test_options_of_scores_that_cannot_be_served_are_an_exception_with_the_reason(change, kind, reason):
    with pytest.raises(kind, match=reason):
        change(randn(1, 2, 9, 32))


@pytest.mark.parametrize(
    ("change", "kind", "reason"),
    [
        (lambda q: attention(q[0], q[0], q[0]), ValueError, "q has 3 dimensions; it must have 4"),
        (lambda q: attention(q, q, q[:, :, :5]), ValueError, "they do not fit together"),
        (lambda q: attention(q, q[..., :8], q[..., :8]), ValueError, "they do not fit together"),
        (lambda q: attention(q, q.float(), q), ValueError, "they must be alike"),
        (lambda q: attention(q, q, q.to("meta")), ValueError, "v is torch.float16 on meta, q is torch.float16"),
        (lambda q: attention(*[q.double()] * 3), ValueError, "must be one of torch.float32"),
        (lambda q: attention(*[q.int()] * 3), ValueError, "q is torch.int32; it must be one of"),
        (lambda q: attention(*[q.to(torch.complex64)] * 3), ValueError, "q is torch.complex64"),
        (lambda q: attention(*[q.bool()] * 3), ValueError, "q is torch.bool"),
        (lambda q: attention(q, None, q), TypeError, "k is None; it must be a torch.Tensor"),
        (lambda q: attention(q, q, q.detach().cpu().numpy()), TypeError, "v is of type ndarray; it must be a torch.Tensor"),
        (lambda q: attention(q.cpu().tolist(), q, q), TypeError, "q is of type list"),
        (lambda q: attention(q.to_sparse(), q, q), ValueError, "q is torch.sparse_coo; it must be dense"),
        (lambda q: attention(q, q, q[0, 0].float().to_sparse_csr()), ValueError, "v is torch.sparse_csr; it must be dense"),
        (lambda q: attention(q, torch.nested.nested_tensor([q[0], q[0]]), q), ValueError, "k is nested; it must be dense"),
        (lambda q: attention(*[torch.nested.nested_tensor([q[0], q[0]], layout=torch.jagged)] * 3), ValueError, "q is nested"),
        (lambda q: attention(q, q, q, dropout=1.0), ValueError, "dropout is 1.0"),
        (lambda q: attention(q, q, q, dropout=torch.tensor(0.1)), TypeError, "dropout is of type Tensor; it must be a number, no tensor"),
        (lambda q: attention(q, q, q, dropout=0.5, dropout_seed=-1), ValueError, "dropout_seed is -1"),
        (lambda q: attention(q, q, q, dropout_seed=torch.tensor(3)), TypeError, "dropout_seed is of type Tensor; it must be an int"),
        (lambda q: attention(q, q, q, variant="nothing"), ValueError, "has no variant 'nothing'"),
        (lambda q: attention(q, q, q, variant=["tuned"]), TypeError, "a variant of 05_flash_v2 is of type list; it must be a name"),
        (lambda q: attention(q, q, q, backward_variant="nothing"), ValueError, "06_backward has no variant 'nothing'"),
        (lambda q: attention(q, q, q, backward_variant=6), TypeError, "a variant of 06_backward is of type int"),
        (lambda q: attention(q, q, q, window=-1), ValueError, "window is -1"),
        (lambda q: attention(q, q, q, window=2.0), TypeError, "window is of type float; it must be an int"),
        (lambda q: attention(q, q, q, window=(3, 0)), TypeError, "window is of type tuple; it must be an int"),
        (lambda q: attention(q, q, q, window=torch.tensor(3)), TypeError, "window is of type Tensor"),
        (lambda q: attention(q, q, q, scale=math.nan), ValueError, "scale is nan"),
        (lambda q: attention(q, q, q, scale="0.3"), TypeError, "scale is of type str; it must be a number"),
        (lambda q: attention(q, q, q, scale=torch.tensor(1.0)), TypeError, "scale is of type Tensor; it must be a number, no tensor"),
        (lambda q: attention(q, q, q, causal="no"), TypeError, "causal is of type str; it must be True or False"),
        (lambda q: attention(q, q, q, causal=torch.ones(9, 9).bool()), TypeError, "causal is of type Tensor; it must be True or False, and other"),
        (lambda q: attention(q[:, :, :0], q, q), ValueError, "seq-q is 0"),
        (lambda q: attention(q, q[:, :, :0], q[:, :, :0]), ValueError, "seq-k is 0"),
        (lambda q: attention(*[q[:0]] * 3), ValueError, "batch is 0"),
        (lambda q: attention(*[q[..., :0]] * 3), ValueError, "dim is 0"),
        (lambda q: attention(q, q[:, :0], q[:, :0]), ValueError, "kv-heads is 0"),
        (lambda q: attention(q[:, :1], q, q), ValueError, "heads must be a multiple of kv-heads"),
        (lambda q: attention(*[q.repeat(1, 1, 1, 9)] * 3), ValueError, "does not support dim 288"),
        (lambda q: attention(*[q.to("meta")] * 3), ValueError, "'meta'"),
        (lambda q: varlen(q, int32()), ValueError, "of one sequence at least"),
        (lambda q: varlen(q, int32(9)), ValueError, "of one sequence at least"),
        (lambda q: varlen(q[0], int32(0, 9)), ValueError, "q has 2 dimensions"),
        (lambda q: varlen(q, torch.tensor([0, 9])), ValueError, "it must be torch.int32"),
        (lambda q: varlen(q, int32(0, 5, 3)), ValueError, "falls from 5 to 3"),
        (lambda q: varlen(q, int32(0, 9)._neg_view()), ValueError, "falls from 0 to -9"),
        (lambda q: varlen(q, int32(1, 9)), ValueError, "must begin with 0"),
        (lambda q: varlen(q, int32(0, 8)), ValueError, "the last of cu-seqlens, 8"),
        (lambda q: varlen(q, [0, 9]), TypeError, "cu_seqlens is of type list; it must be a torch.Tensor, torch.int32"),
        (lambda q: varlen(q, None), TypeError, "cu_seqlens is None; it must be a torch.Tensor"),
        (lambda q: varlen(q, int32(0, 9).to_sparse()), ValueError, "cu_seqlens is torch.sparse_coo; it must be dense"),
        (lambda q: varlen(q, int32(0, 9).to("meta")), ValueError, "cu_seqlens is on meta; it must be on the CPU"),
        (lambda q: attention_varlen(*[q[0].transpose(0, 1)] * 2, q[0].transpose(0, 1)[:5], int32(0, 9)), ValueError, "do not fit together"),
        (lambda q: attention_varlen(q[0].transpose(0, 1), *[q[0].transpose(0, 1)[:5]] * 2, int32(0, 9)), ValueError, "seq-k is 5"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*(prototype|beta)")  # nested and sparse tensors are
def test_what_cannot_be_served_is_an_exception_with_the_reason(change, kind, reason):
    with pytest.raises(kind, match=reason):
        change(randn(1, 2, 9, 32).requires_grad_())


def test_a_second_derivative_is_refused_and_not_left_out():
    q, k, v = (randn(1, 1, 9, 32, seed=n).requires_grad_() for n in range(3))
    for d_o in (torch.ones_like(q), torch.ones_like(q).requires_grad_()):
        o = attention(q, k, v)
        torch.autograd.grad(o, q, d_o, retain_graph=True)
        with pytest.raises(RuntimeError, match="no second derivative"):
            torch.autograd.grad(o, q, d_o, create_graph=True)


def test_what_a_gradient_needs_must_not_change_before():
    q = randn(75, 2, 32).requires_grad_()
    sums = torch.tensor([0, 20, 75], dtype=torch.int32, device=DEVICE)
    o = attention_varlen(q, q, q, sums)
    sums[1] = 30
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


def test_only_gradients_that_are_needed_come():
    q, k, v = (randn(1, 1, 9, 32, seed=n) for n in range(3))
    attention(q, k.requires_grad_(), v).sum().backward()
    assert q.grad is None and v.grad is None and k.grad is not None


def test_autocast_chooses_the_type():
    q, k, v = (randn(1, 2, 70, 32, dtype=torch.float32, seed=n).requires_grad_() for n in range(3))
    with torch.autocast(DEVICE, torch.bfloat16):
        o = attention(q, k, v)
    assert o.dtype == torch.bfloat16 and torch.autograd.grad(o.sum(), q)[0].dtype == torch.float32


@pytest.fixture(params=["raise", "warn"])
def deterministic(request):
    """torch.use_deterministic_algorithms; "warn": with warn_only."""
    torch.use_deterministic_algorithms(True, warn_only=request.param == "warn")
    yield request.param
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("dim", "odd"), [(1, 0), (16, 0), (40, 0), (64, 0), (64, 1), (128, 0), (256, 0)])
@pytest.mark.filterwarnings("error:torch.use_deterministic_algorithms")
def test_deterministic_algorithms_choose_a_kernel_that_serves(deterministic, name, dim, odd):
    dtype = getattr(torch, name)
    inputs = [randn(1, 2, 40, dim + odd, dtype=dtype, seed=n)[..., odd:].requires_grad_() for n in range(3)]
    made = [with_gradients(attention(*inputs, causal=True), inputs, dtype) for _ in range(2)]
    assert all(torch.equal(one, other) for one, other in zip(*made, strict=True))
    torch.use_deterministic_algorithms(False)  # which PyTorch's own products in double precision do not take on every GPU
    assert_alike(made[0], with_gradients(exact(*inputs, causal=True), inputs, dtype), dtype)


@pytest.mark.parametrize("case", ["dropout", "packed", "packed dropout", "a named variant"])
def test_what_has_no_deterministic_kernel_is_refused_before_the_forward_pass(deterministic, case, monkeypatch):
    import flashsteps_torch

    q = randn(1, 2, 20, 32).requires_grad_()
    call = {
        "dropout": lambda: attention(q, q, q, dropout=0.5, dropout_seed=1),
        "packed": lambda: varlen(q, int32(0, 5, 20)),
        "packed dropout": lambda: varlen(q, int32(0, 5, 20), dropout=0.5, dropout_seed=1),
        "a named variant": lambda: attention(q, q, q, backward_variant="tuned_64"),
    }[case]
    with torch.no_grad():
        expected = call()  # no gradient is needed: the forward pass alone is served
    if deterministic == "raise":
        monkeypatch.setattr(flashsteps_torch._Library, "run", lambda *_: pytest.fail("a kernel was launched"))
        with pytest.raises(ValueError, match="torch.use_deterministic_algorithms is on, and no variant of 06_backward"):
            call()
        return
    with pytest.warns(UserWarning, match="torch.use_deterministic_algorithms is on, and no variant of 06_backward"):
        o = call()
    assert torch.equal(o, expected)
    with pytest.warns(UserWarning, match="no variant of 06_backward"):
        made = torch.autograd.grad(o.sum(), q)[0]
    torch.use_deterministic_algorithms(False)
    right = torch.autograd.grad(call().sum(), q)[0]
    assert (made - right).abs().max() < 1e-2 and right.abs().max() > 0.1


def test_what_the_backward_pass_refuses_is_refused_before_the_forward_pass(monkeypatch, tmp_path):
    import flashsteps_torch

    q = randn(1, 2, 9, 128).requires_grad_()
    with pytest.raises(ValueError, match="tuned_64 does not support dim 128"):
        attention(q, q, q, backward_variant="tuned_64")
    attention(*[q.detach()] * 3, backward_variant="tuned_64")  # nobody asks for its gradients
    variable = "FLASHSTEPS_LIB" if ON_GPU else "FLASHSTEPS_SIM_LIB"
    (tmp_path / "libattention_05_flash_v2.so").symlink_to(BIN.parent / "lib" / "libattention_05_flash_v2.so")
    flashsteps_torch._library.cache_clear()
    monkeypatch.setenv(variable, str(tmp_path))
    with pytest.raises(FileNotFoundError, match="libattention_06_backward.so is not in"):
        attention(q, q, q)
    flashsteps_torch._library.cache_clear()


@pytest.mark.parametrize("backward_variant", [None, "tuned_64", "two_kernels"])
def test_the_gradient_of_the_output_may_lie_anywhere(backward_variant):
    inputs = [randn(1, 2, 20, 64, seed=n).requires_grad_() for n in range(3)]
    o, right = attention(*inputs, backward_variant=backward_variant), exact(*inputs)
    wide, d_o = randn(1, 2, 20, 65, seed=7), randn(1, 2, 20, 64, seed=8)
    for made, expected, given in (
        (torch.cat([wide[..., :1], o], -1), torch.cat([wide[..., :1], right], -1), wide),  # rows at odd elements
        (o.mT, right.mT, d_o.mT.contiguous()),  # elements of a row lie apart
        (o.flip(2), right.flip(2), d_o),
        (o[:, :, 3:4], right[:, :, 3:4], d_o[:, :, :1]),
        (o.mean((0, 1, 2)), right.mean((0, 1, 2)), d_o[0, 0, 0]),
    ):
        grads = [torch.autograd.grad(y, inputs, given.to(y.dtype), retain_graph=True) for y in (made, expected)]
        for one, other in zip(*grads, strict=True):
            assert (one.double() - other).abs().max() <= 2**-8 * other.abs().max() + 1e-4


def test_threads_may_call_at_once():
    q, k, v = (randn(1, 1, 40, 32, seed=n) for n in range(3))
    expected = attention(q, k, v)
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(o, expected) for o in pool.map(lambda _: attention(q, k, v), range(12)))


@pytest.fixture
def kept(monkeypatch):
    """What the libraries prepare, (variant, program) for each."""
    import flashsteps_torch

    prepared, prepare = [], flashsteps_torch._Library.prepare
    monkeypatch.setattr(flashsteps_torch._Library, "prepare", lambda *a, **b: prepared.append(prepare(*a, **b)) or prepared[-1])
    return prepared


def test_a_program_that_is_kept_serves_other_tensors(kept):
    held = []  # so that the tensors of each turn lie elsewhere
    for turn in range(3):
        inputs = [randn(1, 2, 21, 64, seed=3 * turn + n).requires_grad_() for n in range(3)]
        o = attention(*inputs, causal=True)
        assert_like_exact(o, exact(*inputs, causal=True), inputs, torch.float16)
        held += [*inputs, o]
    assert len(kept) == 2  # one a pass
    attention(*inputs, causal=False)
    attention(*[x[:, :, :20] for x in inputs])
    attention(*[x.transpose(1, 2).contiguous().transpose(1, 2) for x in inputs])
    assert len(kept) == 5


def test_rows_at_odd_elements_have_a_program_of_their_own(kept):
    chosen = {}
    for start in (0, 1, 0, 1):
        memory = [torch.empty(2 * 22 * 64 + 8, dtype=torch.float16, device=DEVICE) for _ in range(3)]
        inputs = [x[start : start + 2 * 22 * 64].view(1, 2, 22, 64) for x in memory]  # the same sizes and strides
        for n, x in enumerate(inputs):
            x.copy_(randn(*x.shape, seed=n + start)).requires_grad_()
        torch.use_deterministic_algorithms(True)
        try:
            made = with_gradients(attention(*inputs), inputs, torch.float16)
        finally:
            torch.use_deterministic_algorithms(False)
        chosen.setdefault(start, kept[-1][0])
        assert_alike(made, with_gradients(exact(*inputs), inputs, torch.float16), torch.float16)
    assert chosen[0] in ("deterministic", "two_kernels") and chosen[1] == "standard"
    assert len(kept) == 4  # two a pass


def test_threads_with_other_tensors_and_seeds_share_a_program():
    calls = [([randn(1, 1, 40, 32, seed=10 * turn + n) for n in range(3)], turn) for turn in range(8)]
    expected = [attention(*inputs, dropout=0.5, dropout_seed=seed) for inputs, seed in calls]
    assert not torch.equal(expected[0], attention(*calls[0][0], dropout=0.5, dropout_seed=1))
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda call: attention(*call[0], dropout=0.5, dropout_seed=call[1]), calls * 3))
    assert all(torch.equal(one, right) for one, right in zip(made, expected * 3, strict=True))


def test_sums_on_the_cpu_are_checked_at_each_call():
    q = randn(9, 2, 32)
    sums = int32(0, 4, 9)
    made = attention_varlen(q, q, q, sums)
    sums[1] = 6  # at the same address
    changed = attention_varlen(q, q, q, sums)
    for o, end in ((made, 4), (changed, 6)):
        assert torch.equal(o[:end], attention_varlen(*[q[:end]] * 3, int32(0, end)))
    for wrong, reason in ((12, "falls from 12 to 9"), (-1, "falls from 0 to -1")):
        sums[1] = wrong
        with pytest.raises(ValueError, match=reason):
            attention_varlen(q, q, q, sums)
    sums[1] = 4
    assert torch.equal(attention_varlen(q, q, q, sums), made)


def test_missing_libraries_are_named(monkeypatch, tmp_path):
    import flashsteps_torch

    flashsteps_torch._library.cache_clear()
    for variable in ("FLASHSTEPS_LIB", "FLASHSTEPS_SIM_LIB"):
        monkeypatch.setenv(variable, str(tmp_path))
    with pytest.raises(FileNotFoundError, match="libattention_05_flash_v2.so is not in .*make (gpu|sim)"):
        attention(*[randn(1, 1, 4, 32)] * 3)
    flashsteps_torch._library.cache_clear()


# ---- on a GPU alone ----


def both(inputs, **options):
    """O, and the gradients of its sum by the inputs."""
    o = attention(*inputs, **options)
    return [o, *torch.autograd.grad(o, inputs, torch.ones_like(o))]


@needs_gpu
def test_kernels_go_into_the_current_stream_and_nothing_waits():
    q, k, v = (randn(1, 4, 500, 64, seed=n).requires_grad_() for n in range(3))
    expected = both([q, k, v], backward_variant="deterministic")
    late = torch.zeros_like(q)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # about a tenth of a second
        late.copy_(q.detach())
        made = both([late.requires_grad_(), k, v], backward_variant="deterministic")
        assert not stream.query()  # the calls came back while the stream still slept
    stream.synchronize()
    for one, right in zip(made, expected, strict=True):
        assert torch.equal(one, right)


@needs_gpu
@pytest.mark.parametrize("options", [{"causal": True}, {"dropout": 0.2, "dropout_seed": 9}])
def test_a_graph_replays_both_passes(options):
    inputs = [randn(1, 4, 300, 64, seed=n).requires_grad_() for n in range(3)]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        both(inputs, **options)  # loads the kernels
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = both(inputs, **options)
    for seed in (5, 6):
        with torch.no_grad():
            for n, x in enumerate(inputs):
                x.copy_(randn(*x.shape, seed=seed + 10 * n))
        graph.replay()
        for one, right in zip(made, both(inputs, **options), strict=True):
            assert (one - right).abs().max() < 1e-2  # additions of dQ come in any order


@needs_gpu
def test_a_graph_of_packed_sequences():
    inputs = [randn(75, 2, 64, seed=n) for n in range(3)]
    sums = torch.tensor([0, 20, 75], dtype=torch.int32, device="cuda")
    attention_varlen(*inputs, sums)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = attention_varlen(*inputs, sums)
    sums[1] = 40
    graph.replay()
    assert torch.equal(o, attention_varlen(*inputs, sums))


@needs_gpu  # on a CPU all sums are checked; test_library.py has the same without
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("dim", [32, 40, 64, 128, 256])
@pytest.mark.parametrize("dropout", [0.0, 0.25])
@pytest.mark.parametrize("rest", [100.0, math.nan])
def test_tokens_of_no_sequence_see_nothing_and_nobody_sees_them(name, dim, dropout, rest):
    dtype = getattr(torch, name)
    inputs = [randn(300, 2, dim, dtype=dtype, seed=n) for n in range(4)]
    for x in inputs:
        x[75:] = rest
    *inputs, d_o = inputs
    inputs = [x.requires_grad_() for x in inputs]
    of_sequences = [x.detach()[:75].requires_grad_() for x in inputs]
    sums = int32(0, 20, 20, 75).to(DEVICE)
    made, right = (attention_varlen(*x, sums, dropout=dropout, dropout_seed=3) for x in (inputs, of_sequences))
    made = [made, *torch.autograd.grad(made, inputs, d_o)]
    right = [right, *torch.autograd.grad(right, of_sequences, d_o[:75])]
    for one, other in zip(made, right, strict=True):
        assert (one[:75] - other).abs().max() <= 1e-2 * other.abs().max() and (one[75:] == 0).all()


@needs_gpu
def test_memory_is_given_back():
    q, k, v = (randn(1, 4, 300, 64, seed=n).requires_grad_() for n in range(3))
    used = []
    for _ in range(3):
        attention(q, k, v).sum().backward()
        q.grad = k.grad = v.grad = None
        used.append(torch.cuda.memory_allocated())
    assert used[1] == used[2]


@needs_gpu
def test_other_devices():
    if torch.cuda.device_count() < 2:
        pytest.skip("PyTorch sees one GPU")
    on_first = [randn(1, 2, 50, 64, seed=n).requires_grad_() for n in range(3)]
    on_second = [x.detach().to("cuda:1").requires_grad_() for x in on_first]
    options = {"backward_variant": "deterministic"}
    for first, second in zip(both(on_first, **options), both(on_second, **options), strict=True):
        assert torch.equal(first.cpu(), second.cpu())
    assert torch.cuda.current_device() == 0


# ---- linear layers ----


def right_linear(x, weight, bias=None, activation="none"):
    """In double precision; x's batch may be a multiple of weight's."""
    x, weight = x.to(weight.dtype).double(), weight.double()
    for dim in range(weight.dim() - 2):
        weight = weight.repeat_interleave(x.shape[dim] // weight.shape[dim], dim)
        bias = None if bias is None else bias.repeat_interleave(x.shape[dim] // bias.shape[dim], dim)
    y = x @ weight.mT
    if bias is not None:
        y = y + (bias.double() if weight.dim() == 2 else bias.double()[..., None, :])
    functions = {"none": lambda y: y, "relu": torch.relu, "gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu}
    return functions[activation](y)


def assert_product(made, right, dtype):
    assert made.is_contiguous()
    assert_alike([made], [right], dtype)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize(("activation", "k"), [("none", 64), ("relu", 64), ("gelu", 128), ("silu", 50)])
def test_a_linear_layer_is_right(name, activation, k):
    dtype = getattr(torch, name)
    x, weight, bias = randn(2, 3, k, dtype=dtype), randn(33, k, dtype=dtype, seed=2), randn(33, dtype=dtype, seed=3)
    made = linear(x, weight, bias, activation=activation)
    assert made.shape == (2, 3, 33)
    assert_product(made, right_linear(x, weight, bias, activation), dtype)
    assert_product(linear(x.float(), weight, out_dtype=torch.float32), right_linear(x, weight), torch.float32)
    assert torch.equal(linear(x[0, 0], weight, bias, activation=activation, constant_weights=True), made[0, 0])
    assert linear(x[:0], weight, bias).shape == (0, 3, 33)


@pytest.mark.parametrize("samples", [1, 4])
def test_batches_of_weights_are_shared_by_neighbours(samples):
    x, weight, bias = randn(4, 6, 3, 64), randn(samples, 2, 20, 64, seed=2), randn(samples, 2, 20, seed=3)
    assert_product(linear(x, weight, bias, activation="silu"), right_linear(x, weight, bias, "silu"), torch.float16)
    assert_product(linear(x[0], weight[0]), right_linear(x[0], weight[0]), torch.float16)


def test_operands_of_a_linear_layer_may_have_any_strides():
    x, weight = randn(3, 4, 81)[:, ::2, 1:65], randn(64, 20, seed=2).T  # rows at odd elements; rows that are columns
    expected = right_linear(x, weight)
    assert_product(linear(x, weight), expected, torch.float16)
    assert_product(linear(x[0, 0].expand(5, 64), weight), expected[0, 0].expand(5, 20), torch.float16)
    assert_product(linear(randn(4, 3, 64).transpose(0, 1), weight.contiguous()), right_linear(randn(4, 3, 64).transpose(0, 1), weight), torch.float16)


def routed(*shape, slots=2, experts=5):
    """Arguments of routed_linear: one id is no expert's."""
    generator = torch.Generator().manual_seed(4)
    ids = torch.rand(*shape[:-1], experts, generator=generator).argsort(-1)[..., :slots].int()
    ids.view(-1)[3] = -7
    routing = torch.rand(*shape[:-1], slots, generator=generator)
    return randn(*shape), randn(experts, 24, shape[-1], seed=2), ids.to(DEVICE), routing.to(DEVICE)


def right_routed(x, weight, ids, routing, bias=None, activation="none"):
    of_expert = right_linear(x.reshape(1, -1, x.shape[-1]).expand(len(weight), -1, -1), weight, bias, activation)
    chosen = torch.nn.functional.one_hot(ids.long().clamp(min=0).flatten(0, -2), len(weight)) * (ids >= 0).flatten(0, -2)[..., None]
    return torch.einsum("tse,ts,etn->tn", chosen.double(), routing.flatten(0, -2).double(), of_expert).reshape(*x.shape[:-1], -1)


@pytest.mark.parametrize("activation", ["none", "silu"])
def test_a_routed_product_is_right(activation):
    x, weight, ids, routing = routed(2, 20, 64)
    bias = randn(5, 24, seed=3)
    made = routed_linear(x, weight, ids, routing, bias, activation=activation)
    assert_product(made, right_routed(x, weight, ids, routing, bias, activation), torch.float16)
    assert torch.equal(routed_linear(x, weight, ids, routing, bias, activation=activation), made)
    for variant in ("experts_unsorted", "experts_tiled"):
        assert_product(routed_linear(x, weight, ids, routing, bias, activation=activation, variant=variant), made.double(), torch.float16)
    by_slots = [y.mT.contiguous().mT for y in (ids, routing)]  # other strides
    assert torch.equal(routed_linear(x, weight, *by_slots, bias, activation=activation), made)
    assert routed_linear(x[:0], weight, ids[:0], routing[:0]).shape == (0, 20, 24)


def test_autocast_casts_the_operands_of_a_linear_layer():
    x, weight = randn(3, 64, dtype=torch.float32), randn(20, 64, dtype=torch.float32, seed=2)
    with torch.autocast(DEVICE, torch.bfloat16):
        made = linear(x, weight)
    assert_product(made, right_linear(x, weight.bfloat16()), torch.bfloat16)


@pytest.mark.parametrize(
    ("change", "kind", "reason"),
    [
        (lambda x, w: linear(x.repeat(6, 1), w), ValueError, "does not support m 18; it supports .* m up to 16"),
        (lambda x, w: linear(x, w.float()), ValueError, "weights must be fp16 or bf16"),
        (lambda x, w: linear(x.bfloat16(), w), ValueError, "dtype_a is bf16; tokens must be fp32 or of the weights' type, fp16"),
        (lambda x, w: linear(x.int(), w), ValueError, "x is torch.int32; it must be one of"),
        (lambda x, w: linear(x[:, :-1], w), ValueError, "they do not fit together"),
        (lambda x, w: linear(x, w[0]), ValueError, "they do not fit together"),
        (lambda x, w: linear(x, w[None]), ValueError, "batches of weights have 3 or 4 dimensions, and x as many"),
        (lambda x, w: linear(x.expand(3, 3, 64), w.expand(2, 20, 64)), ValueError, "weight_channels is 2; it must divide channels, 3"),
        (lambda x, w: linear(x, w, w[:, 0].float()), ValueError, "bias is torch.float32; it must be torch.float16"),
        (lambda x, w: linear(x, w, w[0]), ValueError, r"bias is \[64\]; it must be \[20\]"),
        (lambda x, w: linear(x, w.to("meta")), ValueError, "weight is on meta, x on"),
        (lambda x, w: linear(*[y.to("meta") for y in (x, w)]), ValueError, "'meta'"),
        (lambda x, w: linear(x.tolist(), w), TypeError, "x is of type list"),
        (lambda x, w: linear(x.to_sparse(), w), ValueError, "x is torch.sparse_coo; it must be dense"),
        (lambda x, w: linear(x, w, activation="tanh"), ValueError, "activation is 'tanh', which is none of none, relu, gelu, silu"),
        (lambda x, w: linear(x, w, activation=torch.relu), TypeError, "activation is of type"),
        (lambda x, w: linear(x, w, out_dtype="float32"), TypeError, "out_dtype is of type str"),
        (lambda x, w: linear(x, w, out_dtype=torch.float64), ValueError, "out_dtype is torch.float64; it must be one of"),
        (lambda x, w: linear(x, w, constant_weights=1), TypeError, "constant_weights is of type int"),
        (lambda x, w: linear(x, w, variant="best"), ValueError, "08_few_tokens has no variant 'best'"),
        (lambda x, w: linear(x, w, variant="experts"), ValueError, "experts does not support a product without experts"),
        (lambda x, w: linear(x[:, :0], w[:, :0]), ValueError, "k is 0"),
        (lambda x, w: linear(x, w.clone().requires_grad_()), ValueError, "these products have no gradients"),
        (lambda x, w: routed_linear(x, w[None], torch.zeros(3, 2, dtype=torch.int64, device=DEVICE), x[:, :2].float()), ValueError, "expert_ids is torch.int64; it must be torch.int32"),
        (lambda x, w: routed_linear(x, w[None], torch.zeros(3, 2, dtype=torch.int32, device=DEVICE), x[:, :2]), ValueError, "routing is torch.float16; it must be torch.float32"),
        (lambda x, w: routed_linear(x, w[None], torch.zeros(2, 2, dtype=torch.int32, device=DEVICE), x[:2, :2].float()), ValueError, "they do not fit together"),
        (lambda x, w: routed_linear(x, w, torch.zeros(3, 2, dtype=torch.int32, device=DEVICE), x[:, :2].float()), ValueError, r"it must be \[experts, n, k\]"),
        (lambda x, w: routed_linear(x, w[None], torch.zeros(3, 0, dtype=torch.int32, device=DEVICE), x[:, :0].float()), ValueError, "has no slots"),
        (lambda x, w: routed_linear(x, w[None], torch.zeros(3, 2, dtype=torch.int32, device=DEVICE), x[:, :2].float()), ValueError, "top is 2; it must be at most experts, 1"),
        (lambda x, w: routed_linear(x[:, :60], w[None, :, :60], torch.zeros(3, 1, dtype=torch.int32, device=DEVICE), x[:, :1].float()), ValueError, "experts does not support k 60"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*(prototype|beta)")
def test_what_a_linear_layer_cannot_serve_is_an_exception_with_the_reason(change, kind, reason):
    with pytest.raises(kind, match=reason):
        change(randn(3, 64), randn(20, 64, seed=2))


def test_a_linear_layer_takes_weights_with_gradients_where_none_are_wanted():
    x, weight = randn(3, 64), randn(20, 64, seed=2).requires_grad_()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert_product(linear(x, weight), right_linear(x, weight), torch.float16)


@needs_gpu
@pytest.mark.parametrize("constant_weights", [False, True])
def test_a_linear_layer_goes_into_the_current_stream_and_nothing_waits(constant_weights):
    x, weight, source = torch.zeros(4, 128, device="cuda", dtype=torch.float16), randn(256, 128, seed=2), randn(4, 128)
    routed_ = routed(4, 64)
    linear(x, weight, constant_weights=constant_weights)  # loads the kernels
    expected = routed_linear(*routed_)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # about a tenth of a second
        x.copy_(source)
        made, second = linear(x, weight, constant_weights=constant_weights), routed_linear(*routed_)
        assert not stream.query()  # the calls have not waited
    stream.synchronize()
    assert_product(made, right_linear(source, weight), torch.float16)
    assert torch.equal(second, expected)


@needs_gpu
def test_weights_that_the_launch_before_writes_are_read_after_it():
    x, weight, source = randn(4, 4096), torch.zeros(4096, 4096, device="cuda", dtype=torch.float16), randn(4096, 4096, seed=2)
    expected = right_linear(x, source)
    for _ in range(20):
        weight.zero_()
        weight.copy_(source)
        assert_product(linear(x, weight), expected, torch.float16)


@needs_gpu
def test_a_graph_replays_linear_layers():
    x, weight = randn(4, 128), randn(256, 128, seed=2)
    routed_ = routed(4, 64)
    linear(x, weight, constant_weights=True), routed_linear(*routed_)  # loads the kernels
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made, second = linear(x, weight, constant_weights=True), routed_linear(*routed_)
    x.copy_(randn(4, 128, seed=7))
    routed_[2].copy_(routed_[2].flip(0))
    graph.replay()
    assert_product(made, right_linear(x, weight), torch.float16)
    assert_product(second, right_routed(*routed_), torch.float16)
