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
    from flashsteps_torch import attention, attention_varlen
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


def assert_like_exact(made, expected, inputs, dtype):
    """O and the gradients of its product with random numbers."""
    tolerance = {torch.float32: 1e-5, torch.float16: 2**-8, torch.bfloat16: 2**-5}[dtype]
    d_o = randn(*made.shape, dtype=dtype, seed=9)
    found = [made, *torch.autograd.grad(made, inputs, d_o)]
    right = [expected, *torch.autograd.grad(expected, inputs, d_o.double())]
    for one, other in zip(found, right, strict=True):
        assert one.dtype == dtype and one.shape == other.shape
        assert (one.double() - other).abs().max() <= tolerance * other.abs().max()


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


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda q: attention(q[0], q[0], q[0]), "q has 3 dimensions; it must have 4"),
        (lambda q: attention(q, q, q[:, :, :5]), "they do not fit together"),
        (lambda q: attention(q, q.float(), q), "they must be alike"),
        (lambda q: attention(*[q.double()] * 3), "must be one of torch.float32"),
        (lambda q: attention(q, q, q, dropout=1.0), "dropout is 1.0"),
        (lambda q: attention(q, q, q, dropout=0.001), "rounds to 0 of 256"),
        (lambda q: attention(q, q, q, dropout=0.5, dropout_seed=-1), "dropout_seed is -1"),
        (lambda q: attention(q, q, q, variant="nothing"), "has no variant 'nothing'"),
        (lambda q: attention(q, q, q, window=-1), "window is -1"),
        (lambda q: attention(q, q, q, backward_variant="nothing"), "06_backward has no variant 'nothing'"),
        (lambda q: attention(q, q, q, window=2**31), "window is 2147483648"),
        (lambda q: attention(q, q, q, scale=math.nan), "scale is nan"),
        (lambda q: attention(q, q, q, scale=1e39), "scale is 1e\\+39"),
        (lambda q: attention(q, q, q, scale=torch.tensor(1.0)), "no tensor"),
        (lambda q: attention(q[:, :, :0], q, q), "seq-q is 0"),
        (lambda q: attention_varlen(q[0], q[0], q[0], torch.empty(0, dtype=torch.int32)), "of one sequence at least"),
        (lambda q: attention(*[q.to("meta")] * 3), "'meta'"),
        (lambda q: attention_varlen(q[0, 0], q[0, 0], q[0, 0], torch.tensor([0, 9])), "q has 2 dimensions"),
        (lambda q: attention_varlen(q[0], q[0], q[0], torch.tensor([0, 9])), "it must be torch.int32"),
        (lambda q: attention_varlen(q[0], q[0], q[0], torch.tensor([0, 5, 3], dtype=torch.int32)), "falls from 5 to 3"),
    ],
)
def test_what_cannot_be_served_is_an_exception_with_the_reason(change, reason):
    with pytest.raises(ValueError, match=reason):
        change(randn(1, 2, 9, 32))


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


def test_autocast_chooses_the_type_and_deterministic_algorithms_the_kernels():
    q, k, v = (randn(1, 2, 70, 32, dtype=torch.float32, seed=n).requires_grad_() for n in range(3))
    with torch.autocast(DEVICE, torch.bfloat16):
        o = attention(q, k, v)
    assert o.dtype == torch.bfloat16 and torch.autograd.grad(o.sum(), q)[0].dtype == torch.float32
    torch.use_deterministic_algorithms(True)
    try:
        made = [torch.autograd.grad(attention(q.half(), k.half(), v.half()).sum(), q)[0] for _ in range(2)]
        assert torch.equal(*made)
        with pytest.raises(ValueError, match="(deterministic|two_kernels) does not support"):
            torch.autograd.grad(attention(*[x.half()[..., :24] for x in (q, k, v)]).sum(), q)
    finally:
        torch.use_deterministic_algorithms(False)


def test_threads_may_call_at_once():
    q, k, v = (randn(1, 1, 40, 32, seed=n) for n in range(3))
    expected = attention(q, k, v)
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(o, expected) for o in pool.map(lambda _: attention(q, k, v), range(12)))


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
