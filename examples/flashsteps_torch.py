"""FlashSteps' attention kernels for PyTorch, in one file to copy.

    from flashsteps_torch import attention, attention_varlen

    o = attention(q, k, v, causal=True)            # [batch, heads, seq, dim], differentiable
    o = attention_varlen(q, k, v, cu_seqlens)      # [tokens, heads, dim], packed sequences

What it needs: PyTorch, and the two libraries libattention_05_flash_v2.so and libattention_06_backward.so (`make gpu` builds them in
build/gpu/lib). They are looked for in the folder that the environment variable FLASHSTEPS_LIB names; without it, beside this file, then in
the build/gpu/lib of a checkout that this file stands in. Tensors on the CPU go to the simulator, which is slow and checks every access; its
libraries are looked for in FLASHSTEPS_SIM_LIB, or in build/sim/lib (`make sim`).

The kernels go into PyTorch's current stream. Nothing here waits for the GPU, unless cu_seqlens is on the CPU and the tensors are not. The
same calls may be captured by torch.cuda.graph: make each of them once before, both passes, with the same types, head dims and options, so
that its kernels are loaded. A captured call keeps its dropout seed.
"""

import ctypes
import functools
import json
import math
import operator
import os
import threading
from pathlib import Path

import torch

FORWARD, BACKWARD = "05_flash_v2", "06_backward"
SIMULATOR = threading.Lock()  # it runs one launch at a time
DTYPES = {torch.float32: b"fp32", torch.float16: b"fp16", torch.bfloat16: b"bf16"}


class _Tensor(ctypes.Structure):
    """As in library/attention_library.h, and so are the others."""

    _fields_ = [("data", ctypes.c_void_p), *((f"{name}_stride", ctypes.c_int64) for name in ("batch", "head", "row"))]


class _Problem(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int) for name in ("device", "batch", "heads", "kv_heads", "seq_q", "seq_k", "dim", "causal", "window")),
        ("scale", ctypes.c_float),
        ("dtype", ctypes.c_char_p),
        *((name, _Tensor) for name in "qkvo"),
        ("lse", ctypes.c_void_p),
        ("cu_seqlens", ctypes.c_void_p),
        ("cu_seqlens_host", ctypes.c_void_p),
        ("cu_seqlens_count", ctypes.c_int),
        ("dropout", ctypes.c_int),
        ("dropout_seed", ctypes.c_uint64),
        ("sparse", ctypes.c_void_p),
    ]


class _Gradients(ctypes.Structure):
    _fields_ = [(name, _Tensor) for name in ("d_o", "dq", "dk", "dv")]


class _Library:
    """One of the shared libraries."""

    def __init__(self, path):
        self._c = ctypes.CDLL(str(path))
        pointer, text = ctypes.c_void_p, ctypes.c_char_p
        for name, result, arguments in [
            ("describe", text, []),
            ("prepare", pointer, [text, ctypes.POINTER(_Problem)]),
            ("prepare_backward", pointer, [text, ctypes.POINTER(_Problem), ctypes.POINTER(_Gradients)]),
            ("scratch_bytes", ctypes.c_size_t, [pointer]),
            ("launch", ctypes.c_bool, [pointer, pointer, pointer]),
            ("release", None, [pointer]),
            ("error", text, []),
        ]:
            function = getattr(self._c, f"attention_{name}")
            function.restype, function.argtypes = result, arguments
        self.variants = {v["name"]: v for v in json.loads(self._c.attention_describe())["variants"]}

    # [doc: run]
    def run(self, variant, problem, gradients, device):
        """Launches a variant once, with scratch memory of PyTorch's."""
        if gradients is None:
            program = self._c.attention_prepare(variant.encode(), problem)
        else:
            program = self._c.attention_prepare_backward(variant.encode(), problem, gradients)
        if not program:
            raise ValueError(self._error())
        try:
            size = self._c.attention_scratch_bytes(program)
            scratch = torch.empty(size, dtype=torch.uint8, device=device)
            stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else None
            if not self._c.attention_launch(program, scratch.data_ptr() or None, stream):
                raise RuntimeError(self._error())
        finally:
            self._c.attention_release(program)
    # [/doc: run]

    def _error(self):
        return self._c.attention_error().decode()


@functools.cache
def _library(step, device_type):
    if device_type not in ("cuda", "cpu"):
        raise ValueError(f"a tensor is on {device_type!r}; these kernels take CUDA tensors, and on the CPU the simulator's")
    variable, build = ("FLASHSTEPS_LIB", "gpu") if device_type == "cuda" else ("FLASHSTEPS_SIM_LIB", "sim")
    here = Path(__file__).resolve().parent
    folders = [here] * (device_type == "cuda") + [here.parent / "build" / build / "lib"]
    if variable in os.environ:
        folders = [Path(os.environ[variable])]
    for folder in folders:
        path = folder / f"libattention_{step}.so"
        if path.is_file():
            return _Library(path)
    raise FileNotFoundError(f"libattention_{step}.so is not in {' nor in '.join(map(str, folders))}; `make {build}` builds it, and {variable} says where it is")


def _variant(step, q, is_packed_with_dropout, wanted):
    """The best variant that takes the problem and runs on the device, unless one is named."""
    if wanted is not None:
        return wanted
    is_older = q.device.type == "cuda" and torch.cuda.get_device_capability(q.device) < (9, 0)
    if step == BACKWARD and torch.are_deterministic_algorithms_enabled():
        return "standard" if q.dtype == torch.float32 else "two_kernels" if is_older else "deterministic"
    if q.dtype == torch.float32 or is_packed_with_dropout:
        return "scalar" if step == FORWARD else "recompute"
    return "tuned_80" if step == BACKWARD and is_older else "tuned"


def _tensor(x):
    strides = (stride if size > 1 else 0 for size, stride in zip(x.shape, x.stride(), strict=True))
    return _Tensor(x.data_ptr(), *list(strides)[:3])


def _run(step, options, tensors, cu_seqlens, checked, gradients=None):
    """tensors: q, k, v, o [batch, heads, seq, dim], lse [batch, heads, seq]; gradients: d_o, dq, dk, dv, or None."""
    q, k, v, o, lse = tensors
    causal, window, scale, dropout, seed, variants = options
    problem = _Problem(
        *(q.device.index or 0, q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3]),
        *(int(causal), window, math.nan if scale is None else scale, DTYPES[q.dtype]),
        *(_tensor(x) for x in (q, k, v, o)),
        lse.data_ptr(),
        *((None, None, 0) if cu_seqlens is None else (cu_seqlens.data_ptr(), None if checked is None else checked.data_ptr(), len(cu_seqlens))),
        *(dropout, seed),
    )
    described = None if gradients is None else _Gradients(*(_tensor(x) for x in gradients))  # the tensors must live on until the launch
    variant = _variant(step, q, dropout > 0 and cu_seqlens is not None, variants[0 if step == FORWARD else 1])
    with torch.cuda.device(q.device) if q.device.type == "cuda" else SIMULATOR:
        _library(step, q.device.type).run(variant, problem, described, q.device)


def _rows(x):
    """The same tensor, with elements of a row side by side."""
    x = x.resolve_neg()
    return x if x.stride(-1) == 1 else x.contiguous()


def _like(x):
    """Memory for a tensor of this shape, dense, with the dimensions in the same order."""
    return _rows(torch.empty_like(x))


# [doc: autograd]
class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, cu_seqlens, checked, options):
        q, k, v = _rows(q), _rows(k), _rows(v)
        o = _like(q)
        lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        _run(FORWARD, options, (q, k, v, o, lse), cu_seqlens, checked)
        ctx.save_for_backward(q, k, v, o, lse, cu_seqlens, checked)
        ctx.options = options
        return o

    @staticmethod
    def backward(ctx, d_o):
        if torch.is_grad_enabled():
            raise RuntimeError("attention has no second derivative (create_graph=True)")
        *tensors, cu_seqlens, checked = ctx.saved_tensors
        gradients = [_like(x) for x in tensors[:3]]
        _run(BACKWARD, ctx.options, tensors, cu_seqlens, checked, (_rows(d_o), *gradients))
        needed = (made if need else None for made, need in zip(gradients, ctx.needs_input_grad, strict=False))
        return *needed, None, None, None
# [/doc: autograd]


def _check(q, k, v, dims):
    """Raises ValueError for tensors that no kernel takes together."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != dims:
            raise ValueError(f"{name} has {x.dim()} dimensions; it must have {dims}")
        if x.dtype != q.dtype or x.device != q.device:
            raise ValueError(f"{name} is {x.dtype} on {x.device}, q is {q.dtype} on {q.device}; they must be alike")
        if max(x.shape) >= 2**31:
            raise ValueError(f"{name} is {list(x.shape)}; no size may be 2^31 or more")
    if q.dtype not in DTYPES:
        raise ValueError(f"q is {q.dtype}; it must be one of {', '.join(map(str, DTYPES))}")
    if (dims == 4 and q.shape[0] != k.shape[0]) or k.shape != v.shape or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q is {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}; they do not fit together")


def _cast(*tensors):
    """As torch.autocast wants them, where it is on."""
    kind = tensors[0].device.type
    if kind not in ("cuda", "cpu") or not torch.is_autocast_enabled(kind):
        return tensors
    return tuple(x.to(torch.get_autocast_dtype(kind)) if x.dtype in DTYPES else x for x in tensors)


def _dropout(p, seed):
    """(n of 256, seed). Without a seed, one from PyTorch's generator on the CPU: torch.manual_seed sets it."""
    if not 0 <= p < 1:
        raise ValueError(f"dropout is {p}; it must be 0 or more, and less than 1")
    n = round(p * 256)
    if p > 0 and not 0 < n < 256:
        raise ValueError(f"dropout is {p}, which rounds to {n} of 256; it must be 1 to 255 of 256, or 0")
    if n == 0:
        return 0, 0
    seed = torch.randint(2**63 - 1, (), device="cpu").item() if seed is None else operator.index(seed)
    if not 0 <= seed < 2**64:
        raise ValueError(f"dropout_seed is {seed}; it must be 0 to 2^64 - 1")
    return n, seed


def _options(q, causal, window, scale, dropout, seed, variants):
    window = operator.index(window)
    if not 0 <= window < 2**31:
        raise ValueError(f"window is {window}; it must be 0 (none) to 2^31 - 1")
    if scale is not None and (isinstance(scale, torch.Tensor) or not abs(scale) <= torch.finfo(torch.float32).max):
        raise ValueError(f"scale is {scale}; it must be a finite number in fp32, and no tensor")
    for step, variant in zip((FORWARD, BACKWARD), variants, strict=True):
        if variant is not None and variant not in _library(step, q.device.type).variants:
            raise ValueError(f"{step} has no variant {variant!r}")
    return bool(causal), window, scale, *_dropout(dropout, seed), variants


def attention(q, k, v, *, causal=False, window=0, scale=None, dropout=0.0, dropout_seed=None, variant=None, backward_variant=None):
    """softmax(scale · q kᵀ) v, differentiable by q, k and v.

    q [batch, heads, seq_q, dim], k and v [batch, kv_heads, seq_k, dim]; heads is a multiple of kv_heads; dim is at most 256; float32,
    float16 or bfloat16, all alike, on one device, with any strides (a tensor whose rows are not contiguous is copied). Returns
    [batch, heads, seq_q, dim], dense, in the order that q has in memory.
    causal: query i sees the keys j <= i + seq_k - seq_q; window: those with |i + seq_k - seq_q - j| < window; 0: no window.
    scale: by default 1/sqrt(dim). dropout: the share of pairs that are left out, rounded to n/256; the kept ones are multiplied by
    256/(256 - n). The same dropout_seed gives the same pairs; without one it comes from torch's CPU generator.
    variant, backward_variant: kernels by name, as the steps' --list shows them; by default the best, and under
    torch.use_deterministic_algorithms one whose gradients have the same bits in every run. Under torch.autocast tensors are cast to its type.
    Raises ValueError for what cannot be served, with the reason; RuntimeError for a failed launch, and for a
    second derivative; FileNotFoundError without libraries.
    """
    q, k, v = _cast(q, k, v)
    _check(q, k, v, 4)
    options = _options(q, causal, window, scale, dropout, dropout_seed, (variant, backward_variant))
    return _Attention.apply(q, k, v, None, None, options)


def attention_varlen(q, k, v, cu_seqlens, *, causal=False, window=0, scale=None, dropout=0.0, dropout_seed=None, variant=None, backward_variant=None):
    """The same for sequences of different lengths, packed one behind another: a query sees keys of its own sequence alone.

    q [tokens, heads, dim], k and v [tokens, kv_heads, dim]. cu_seqlens [sequences + 1], int32: sums of the lengths, from 0 to tokens.
    On the CPU it is checked, and copied to the device, for which the host waits; on the device it is used as it is, and nothing waits: a
    wrong one then gives wrong results. Returns [tokens, heads, dim]. With dropout the scalar kernels serve, which are about
    thirty times slower (the README's table, 4096 tokens).
    """
    q, k, v = _cast(q, k, v)
    _check(q, k, v, 3)
    if cu_seqlens.dtype != torch.int32 or cu_seqlens.dim() != 1 or len(cu_seqlens) < 2:
        raise ValueError(f"cu_seqlens is {cu_seqlens.dtype} {list(cu_seqlens.shape)}; it must be torch.int32 [sequences + 1], of one sequence at least")
    options = _options(q, causal, window, scale, dropout, dropout_seed, (variant, backward_variant))
    cu_seqlens = cu_seqlens.contiguous()
    checked = cu_seqlens if cu_seqlens.device.type == "cpu" else None
    as_heads = [x.transpose(0, 1)[None] for x in (q, k, v)]
    return _Attention.apply(*as_heads, cu_seqlens.to(q.device), checked, options)[0].transpose(0, 1)
