"""FlashSteps' kernels for PyTorch, in one file to copy.

    from flashsteps_torch import attention, attention_varlen, linear, routed_linear

    o = attention(q, k, v, causal=True)            # [batch, heads, seq, dim], differentiable
    o = attention(q, k, v, lengths=lengths)        # a padded cache of keys; so are softcap, alibi, bias and sinks, at inference
    o = attention_varlen(q, k, v, cu_seqlens)      # [tokens, heads, dim], packed sequences
    y = linear(x, weight, bias, activation="silu") # [tokens, n], few tokens, at inference
    y = routed_linear(x, weight, expert_ids, routing)    # [tokens, n], a mixture of experts, at inference

What it needs: PyTorch, and the libraries libattention_05_flash_v2.so and libattention_06_backward.so for attention, libattention_09_decoding.so
for attention with options of scores, liblinear_08_few_tokens.so for the others (`make gpu` builds them in build/gpu/lib). They are looked for in
the folder that the environment variable FLASHSTEPS_LIB names; without it, beside this file, then in the build/gpu/lib of a checkout that this
file stands in. Tensors on the CPU go to the simulator, which is slow and checks every access; its libraries are looked for in
FLASHSTEPS_SIM_LIB, or in build/sim/lib (`make sim`).

The kernels go into PyTorch's current stream. Nothing here waits for the GPU, unless cu_seqlens is on the CPU and the tensors are not. The
same calls may be captured by torch.cuda.graph: make each of them once before, of attention both passes, with the same types, head dims and options, so
that its kernels are loaded. A captured call keeps its dropout seed.
"""

import contextlib
import ctypes
import functools
import json
import math
import numbers
import os
import threading
import warnings
from pathlib import Path

import torch

FORWARD, BACKWARD, LINEAR, SCORED = "05_flash_v2", "06_backward", "08_few_tokens", "09_decoding"
SIMULATOR, NOTHING = threading.Lock(), contextlib.nullcontext()  # the simulator runs one launch at a time
NO_GRADIENTS = (None,) * 4  # addresses of d_o, dq, dk and dv
NO_SCORES = (None,) * 4  # addresses of bias, sinks, lengths and lengths_host
INTEGER, REAL = (int, numbers.Integral), (float, int, numbers.Real)  # the builtin types first: the others are found slowly
C_TYPES = {"int32": ctypes.c_int32, "float32": ctypes.c_float, "uint64": ctypes.c_uint64}  # of an option
DTYPES = {torch.float32: b"fp32", torch.float16: b"fp16", torch.bfloat16: b"bf16"}


class _Tensor(ctypes.Structure):
    """As in library/attention_library.h, and so are the others."""

    _fields_ = [("data", ctypes.c_void_p), *((f"{name}_stride", ctypes.c_int64) for name in ("batch", "head", "row"))]


def _problem(options):
    """The structure of a problem, whose last fields are the options that a library describes."""
    fields = [
        *((name, ctypes.c_int) for name in ("device", "batch", "heads", "kv_heads", "seq_q", "seq_k", "dim")),
        ("dtype", ctypes.c_char_p),
        *((name, _Tensor) for name in "qkvo"),
        *((name, ctypes.c_void_p) for name in ("lse", "cu_seqlens", "cu_seqlens_host")),
        ("cu_seqlens_count", ctypes.c_int),
        ("sparse", ctypes.c_void_p),
        ("bias", _Tensor),
        *((name, ctypes.c_void_p) for name in ("sinks", "lengths", "lengths_host")),
        *((row["name"], C_TYPES[row["type"]]) for row in sorted(options, key=lambda row: row["offset"])),
    ]
    return type("_Problem", (ctypes.Structure,), {"_fields_": fields})


class _Gradients(ctypes.Structure):
    _fields_ = [(name, _Tensor) for name in ("d_o", "dq", "dk", "dv")]


class _Addresses(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "o", "lse", "d_o", "dq", "dk", "dv", "cu_seqlens", "cu_seqlens_host")),
        *((name, ctypes.c_void_p) for name in ("bias", "sinks", "lengths", "lengths_host")),
        ("dropout_seed", ctypes.c_uint64),
    ]


class _LinearTensor(ctypes.Structure):
    """As in library/linear_library.h, and so are the next two."""

    _fields_ = [("data", ctypes.c_void_p), *((f"{name}_stride", ctypes.c_int64) for name in ("sample", "channel", "row"))]


class _LinearProblem(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int) for name in ("device", "samples", "channels", "weight_samples", "weight_channels", "m", "n", "k", "experts", "top")),
        *((name, ctypes.c_char_p) for name in ("dtype", "dtype_a", "dtype_c", "activation")),
        ("constant_weights", ctypes.c_int),
        *((name, _LinearTensor) for name in "abc"),
        *((name, ctypes.c_void_p) for name in ("bias", "expert_ids", "routing")),
    ]


class _LinearAddresses(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("a", "b", "bias", "c", "expert_ids", "routing")]


class _Program:
    """What a library prepared. It is released when nobody uses it any more."""

    def __init__(self, c, family, handle):
        self.handle, self.scratch_bytes, self._release = handle, getattr(c, f"{family}_scratch_bytes")(handle), getattr(c, f"{family}_release")

    def __del__(self):
        self._release(self.handle)


class _Loaded:
    """One of the shared libraries."""

    def __init__(self, path, prepares, addresses):
        """prepares: its functions that prepare, and how many structures each takes."""
        self._c = ctypes.CDLL(str(path))
        pointer, text = ctypes.c_void_p, ctypes.c_char_p
        for name, result, arguments in [
            ("describe", text, []),
            *((name, pointer, [text, *[pointer] * structures]) for name, structures in prepares.items()),
            ("scratch_bytes", ctypes.c_size_t, [pointer]),
            ("launch_on", ctypes.c_bool, [pointer, ctypes.POINTER(addresses), pointer, pointer]),
            ("release", None, [pointer]),
            ("error", text, []),
        ]:
            function = getattr(self._c, f"{self.family}_{name}")
            function.restype, function.argtypes = result, arguments
        self._launch_on, self._last_error = getattr(self._c, f"{self.family}_launch_on"), getattr(self._c, f"{self.family}_error")
        self.described = json.loads(getattr(self._c, f"{self.family}_describe")())
        self.step, self.variants = self.described["step"], {v["name"]: v for v in self.described["variants"]}
        self.program = functools.lru_cache(maxsize=256)(self._program)

    # [doc: run]
    def run(self, program, addresses, device):
        """Launches the program once, with scratch memory of PyTorch's, in its current stream."""
        scratch = None
        if program.scratch_bytes:
            scratch = torch.empty(program.scratch_bytes, dtype=torch.uint8, device=device)
        stream = _stream(device.index) if device.type == "cuda" else None
        if not self._launch_on(program.handle, addresses, None if scratch is None else scratch.data_ptr(), stream):
            raise RuntimeError(self._error())
    # [/doc: run]

    def _error(self):
        return self._last_error().decode()


class _Library(_Loaded):
    """A step of attention."""

    family = "attention"

    def __init__(self, path):
        super().__init__(path, {"prepare": 1, "prepare_backward": 2}, _Addresses)
        self.options = [(row["name"], KINDS[row["kind"]](row)) for row in self.described["options"]]
        self.Problem = _problem(self.described["options"])
        self.best = self.described["best"]  # the first one that takes a problem, and runs on its device, serves it

    def prepare(self, problem, gradients, wanted=None, same_bits=False):
        """(variant, program): `wanted`, or the best one that takes the problem. With `same_bits` its results are the same in every run."""
        names, reasons = self.best if wanted is None else [wanted], []
        if same_bits:
            reasons = [f"{name} adds in any order" for name in names if name == wanted and not self.variants[name]["deterministic"]]
            names = [name for name in names if self.variants[name]["deterministic"]]
        for name in names:
            if gradients is None:
                handle = self._c.attention_prepare(name.encode(), ctypes.addressof(problem))
            else:
                handle = self._c.attention_prepare_backward(name.encode(), ctypes.addressof(problem), ctypes.addressof(gradients))
            if handle:
                return name, _Program(self._c, self.family, handle)
            reasons.append(self._error())
        text = "; ".join(dict.fromkeys(reasons))  # all variants say the same of some problems
        if same_bits:
            text = f"torch.use_deterministic_algorithms is on, and no variant of {self.step} gives the same bits in every run here: {text}"
        raise ValueError(text)

    # [doc: program]
    def _program(self, device, dtype, q_shape, k_shape, strides, starts, count, sums, scores, options, wanted, same_bits):
        """Prepares for all tensors that begin at the same place within 16 bytes. `self.program` is the same, and remembers."""
        (batch, heads, seq_q, dim), (_, kv_heads, seq_k, _) = q_shape, k_shape
        shapes = (q_shape, k_shape, k_shape, q_shape, q_shape, q_shape, k_shape, k_shape)  # of q, k, v, o, d_o, dq, dk, dv
        lse, *starts = (256 + start for start in starts)  # stands for an address: the launch brings the real ones
        tensors = [
            _Tensor(start, *(stride if size > 1 else 0 for size, stride in zip(shape[:3], strides_, strict=False)))
            for shape, strides_, start in zip(shapes, strides, starts, strict=False)
        ]
        problem = self.Problem(
            device=device, batch=batch, heads=heads, kv_heads=kv_heads, seq_q=seq_q, seq_k=seq_k, dim=dim, dtype=DTYPES[dtype],
            **dict(zip("qkvo", tensors, strict=False)), lse=lse,
            cu_seqlens=256 if count else None, cu_seqlens_host=ctypes.cast(sums, ctypes.c_void_p), cu_seqlens_count=count,
            **{name: _Tensor(256, *strides_) if strides_ else 256 for name, strides_ in scores},
            **{name: math.nan if value is None else value for name, value in options},
        )  # fmt: skip
        return self.prepare(problem, _Gradients(*tensors[4:]) if tensors[4:] else None, wanted, same_bits)[1]
    # [/doc: program]


class _LinearLibrary(_Loaded):
    """A step of linear layers."""

    family = "linear"

    def __init__(self, path):
        super().__init__(path, {"prepare": 1}, _LinearAddresses)

    def _program(self, device, dtypes, activation, x_shape, weight_shape, top, strides, starts, constant_weights, wanted):
        """As _Library._program. Of x, weight and result: types, strides; then starts of bias, ids and routing, None where they are not."""
        (samples, channels, m, k), (weight_samples, weight_channels, n, _) = x_shape, weight_shape
        shapes = (x_shape, weight_shape, x_shape)
        *places, bias, ids, routing = (None if start is None else 256 + start for start in starts)  # stand for addresses
        tensors = [
            _LinearTensor(place, *(stride if size > 1 else 0 for size, stride in zip(shape[:3], strides_, strict=False)))
            for shape, strides_, place in zip(shapes, strides, places, strict=True)
        ]
        dtype_a, dtype, dtype_c = (DTYPES[dtype] for dtype in dtypes)
        problem = _LinearProblem(
            device=device, samples=samples, channels=channels, weight_samples=weight_samples, weight_channels=weight_channels, m=m, n=n, k=k,
            experts=weight_channels if top else 0, top=top, dtype=dtype, dtype_a=dtype_a, dtype_c=dtype_c, activation=activation.encode(),
            constant_weights=constant_weights, **dict(zip("abc", tensors, strict=True)), bias=bias, expert_ids=ids, routing=routing,
        )  # fmt: skip
        handle = self._c.linear_prepare(None if wanted is None else wanted.encode(), ctypes.addressof(problem))
        if not handle:
            raise ValueError(self._error())
        return _Program(self._c, self.family, handle)


def _stream(index):
    """The current stream of a CUDA device, as an address. The first way takes 0.2 µs, the other one 2 µs."""
    if hasattr(torch._C, "_cuda_getCurrentRawStream"):
        return torch._C._cuda_getCurrentRawStream(index)
    return torch.cuda.current_stream(index).cuda_stream


@functools.cache
def _library(step, device_type):
    if device_type not in ("cuda", "cpu"):
        raise ValueError(f"a tensor is on {device_type!r}; these kernels take CUDA tensors, and on the CPU the simulator's")
    variable, build = ("FLASHSTEPS_LIB", "gpu") if device_type == "cuda" else ("FLASHSTEPS_SIM_LIB", "sim")
    here = Path(__file__).resolve().parent
    folders = [here] * (device_type == "cuda") + [here.parent / "build" / build / "lib"]
    if variable in os.environ:
        folders = [Path(os.environ[variable])]
    kind = _LinearLibrary if step == LINEAR else _Library
    name = f"lib{kind.family}_{step}.so"
    for folder in folders:
        if (folder / name).is_file():
            return kind(folder / name)
    raise FileNotFoundError(f"{name} is not in {' nor in '.join(map(str, folders))}; `make {build}` builds it, and {variable} says where it is")


def _determinism():
    """What torch.use_deterministic_algorithms asks for where additions come in any order: None, "raise" or "warn"."""
    if not torch.are_deterministic_algorithms_enabled():
        return None
    return "warn" if torch.is_deterministic_algorithms_warn_only_enabled() else "raise"


def _as_deterministic(determinism, prepare):
    """prepare(whether the results must have the same bits in every run)."""
    try:
        return prepare(determinism is not None)
    except ValueError as error:
        if determinism != "warn":
            raise
        warnings.warn(str(error), stacklevel=2)
        return prepare(False)


def _run(step, options, tensors, cu_seqlens, checked, gradients=(), scores=None, determinism=None, launches=True):
    """tensors: q, k, v, o [batch, heads, seq, dim], lse [batch, heads, seq]; gradients: d_o, dq, dk, dv, or none; scores: a _Scores, or none.
    Without `launches` it only finds out whether it could."""
    q, k, v, o, lse = tensors
    options, seed, variants = options
    device = q.device
    library = _library(step, device.type)
    lse_at, *places = [x.data_ptr() for x in (lse, q, k, v, o, *gradients)]  # the tensors must live on until the launch
    strides = tuple([x.stride() for x in (q, k, v, o, *gradients)])
    starts = tuple([place % 16 for place in (lse_at, *places)])
    count, sums, sums_at = 0, None, (None, None)
    if cu_seqlens is not None:
        count, sums_at = len(cu_seqlens), (cu_seqlens.data_ptr(), None if checked is None else checked.data_ptr())
        sums = None if checked is None else ctypes.string_at(sums_at[1], 4 * count)
    of_scores, scores_at = ((), NO_SCORES) if scores is None else scores.described()
    key = (device.index or 0, q.dtype, q.shape, k.shape, strides, starts, count, sums, of_scores, options, variants[step == BACKWARD])
    with NOTHING if device.type == "cuda" else SIMULATOR:
        program = library.program(*key, False) if determinism is None else _as_deterministic(determinism, functools.partial(library.program, *key))
        if launches:
            library.run(program, _Addresses(*places[:4], lse_at, *(places[4:] or NO_GRADIENTS), *sums_at, *scores_at, seed), device)


def _rows(x):
    """The same tensor, with elements of a row side by side."""
    if x.is_neg():
        x = x.resolve_neg()
    return x if x.stride()[-1] == 1 else x.contiguous()


def _has_aligned_rows(x):
    """Whether they begin at multiples of 16 bytes, as the fast variants want them."""
    strides = (stride * x.element_size() for size, stride in zip(x.shape[:-1], x.stride(), strict=False) if size > 1)
    return not any(place % 16 for place in (x.data_ptr(), *strides))


def _like(x):
    """Memory for a tensor of this shape, dense, with the dimensions in the same order."""
    return _rows(torch.empty_like(x))


def _gradients(q, k, v, o, d_o):
    """d_o, and memory for dq, dk and dv."""
    d_o = _rows(d_o)  # it may be a part of a wider tensor's gradient
    if not _has_aligned_rows(d_o) and _has_aligned_rows(o):
        d_o = d_o.clone(memory_format=torch.contiguous_format)
    return d_o, _like(q), _like(k), _like(v)


# [doc: autograd]
class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, cu_seqlens, checked, options):
        q, k, v = _rows(q), _rows(k), _rows(v)
        o = _like(q)
        lse = torch.empty(*q.shape[:3], dtype=torch.float32, device=q.device)
        _run(FORWARD, options, (q, k, v, o, lse), cu_seqlens, checked)
        ctx.save_for_backward(q, k, v, o, lse, cu_seqlens, checked)
        ctx.options = options
        return o

    @staticmethod
    def backward(ctx, d_o):
        if torch.is_grad_enabled():
            raise RuntimeError("attention has no second derivative (create_graph=True)")
        *tensors, cu_seqlens, checked = ctx.saved_tensors
        gradients = _gradients(*tensors[:4], d_o)
        _run(BACKWARD, ctx.options, tensors, cu_seqlens, checked, gradients, determinism=_determinism())
        needed = (made if need else None for made, need in zip(gradients[1:], ctx.needs_input_grad, strict=False))
        return *needed, None, None, None
# [/doc: autograd]


def _refuse_early(q, k, v, cu_seqlens, checked, options):
    """Raises what the backward pass would, before the forward pass."""
    q, k, v = _rows(q), _rows(k), _rows(v)
    o, lse = _like(q), torch.empty(*q.shape[:3], dtype=torch.float32, device=q.device)
    _run(FORWARD, options, (q, k, v, o, lse), cu_seqlens, checked, launches=False)
    _run(BACKWARD, options, (q, k, v, o, lse), cu_seqlens, checked, _gradients(q, k, v, o, o), determinism=_determinism(), launches=False)


class _Scores:
    """What changes scores, and ends a padded cache, as the kernels take it: tensors, or None."""

    def __init__(self, q, k, bias, sinks, lengths):
        """Raises TypeError or ValueError for what no kernel takes. Lengths on the CPU are checked, and copied to q's device."""
        batch, heads, seq_q, _ = q.shape
        seq_k = k.shape[2]
        _check_dense({name: x for name, x in (("bias", bias), ("sinks", sinks), ("lengths", lengths)) if x is not None})
        self.bias = None if bias is None else _as_bias(bias, q, (batch, heads, seq_q, seq_k))
        for name, x, size, of, dtype in (("sinks", sinks, heads, "heads", torch.float32), ("lengths", lengths, batch, "batch", torch.int32)):
            if x is not None and (x.shape != (size,) or x.dtype is not dtype):
                raise ValueError(f"{name} is {x.dtype} {list(x.shape)}; it must be {dtype} [{of}], which is [{size}]")
        if sinks is not None and sinks.device != q.device:
            raise ValueError(f"sinks is on {sinks.device}, q on {q.device}; they must be on one device")
        if lengths is not None and lengths.device not in (torch.device("cpu"), q.device):
            raise ValueError(f"lengths is on {lengths.device}; it must be on the CPU, or with q on {q.device}")
        self.sinks, lengths = (None if x is None else x.resolve_neg().contiguous() for x in (sinks, lengths))
        if lengths is not None and lengths.device.type == "cpu" and batch > 0:
            for length in torch.aminmax(lengths):
                if not 0 <= length <= seq_k:
                    raise ValueError(f"lengths holds {length}; it must be from 0 to seq_k, {seq_k}")
        self.lengths = None if lengths is None else lengths.to(q.device)

    def described(self):
        """((name, strides) of each that there is, which a program depends on; addresses, which come with a launch)."""
        places = [None if x is None else x.data_ptr() for x in (self.bias, self.sinks, self.lengths)]
        of_bias = () if self.bias is None else tuple(stride if size > 1 else 0 for size, stride in zip(self.bias.shape[:3], self.bias.stride(), strict=False))
        strides = {"bias": of_bias, "sinks": (), "lengths": ()}
        return tuple((name, strides[name]) for name, place in zip(strides, places, strict=True) if place is not None), (*places, None)


def _as_bias(bias, q, shape):
    """The bias of that shape, with strides of 0 where it is the same for all, and keys side by side."""
    if bias.dim() > 4 or any(size not in (1, wanted) for size, wanted in zip(reversed(bias.shape), reversed(shape), strict=False)):
        raise ValueError(f"bias is {list(bias.shape)}; it must be broadcastable to [batch, heads, seq_q, seq_k], {list(shape)}")
    bias = bias.expand(shape)
    once = bias[tuple(slice(None) if stride else slice(1) for stride in bias.stride()[:3])]  # what is copied, if it must be
    (once,) = _cast(once)
    if once.dtype is not q.dtype or once.device != q.device:
        raise ValueError(f"bias is {once.dtype} on {once.device}, q is {q.dtype} on {q.device}; they must be alike")
    return _rows(once).expand(shape)


class _WithScores(torch.autograd.Function):
    """Without a backward pass: gradients are refused before."""

    @staticmethod
    def forward(ctx, q, k, v, bias, sinks, lengths, options):
        q, k, v = _rows(q), _rows(k), _rows(v)
        o = _like(q)
        lse = torch.empty(*q.shape[:3], dtype=torch.float32, device=q.device)
        _run(SCORED, options, (q, k, v, o, lse), None, None, scores=_Scores(q, k, bias, sinks, lengths))
        return o


def _attend_with_scores(q, k, v, bias, sinks, lengths, options):
    given = [name for name, value in options[0] if name in ("softcap", "alibi") and value]
    given += [name for name, x in (("bias", bias), ("sinks", sinks), ("lengths", lengths)) if x is not None]
    if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in (q, k, v, bias, sinks)):
        raise ValueError(f"attention with {', '.join(given)} has no gradients; call it under torch.no_grad() or torch.inference_mode()")
    return _WithScores.apply(q, k, v, bias, sinks, lengths, options)


def _attend(q, k, v, cu_seqlens, checked, options):
    if (q.requires_grad or k.requires_grad or v.requires_grad) and torch.is_grad_enabled():
        _library(BACKWARD, q.device.type)  # a missing one is found now
        if _determinism() or options[-1][1] is not None:  # otherwise one serves every problem
            _refuse_early(q, k, v, cu_seqlens, checked, options)
    return _Attention.apply(q, k, v, cu_seqlens, checked, options)


def _kind(value):
    return "None" if value is None else f"of type {type(value).__name__}"


def _check_dense(tensors):
    """Raises TypeError or ValueError for what is no dense tensor."""
    for name, x in tensors.items():
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} is {_kind(x)}; it must be a torch.Tensor")
        if x.is_nested or x.layout is not torch.strided:
            raise ValueError(f"{name} is {'nested' if x.is_nested else x.layout}; it must be dense (torch.strided)")


def _check(tensors, dims):
    """Raises TypeError or ValueError for tensors that no kernel takes together. Returns them as torch.autocast wants them, where it is on."""
    _check_dense(tensors)
    tensors = _cast(*tensors.values())
    dtype, device, shapes = tensors[0].dtype, tensors[0].device, [x.shape for x in tensors]
    for name, x, shape in zip("qkv", tensors, shapes, strict=True):
        if len(shape) != dims:
            raise ValueError(f"{name} has {len(shape)} dimensions; it must have {dims}")
        if x.dtype is not dtype or x.device != device:
            raise ValueError(f"{name} is {x.dtype} on {x.device}, q is {dtype} on {device}; they must be alike")
        if max(shape) >= 2**31:
            raise ValueError(f"{name} is {list(shape)}; no size may be 2^31 or more")
    if dtype not in DTYPES:
        raise ValueError(f"q is {dtype}; it must be one of {', '.join(map(str, DTYPES))}")
    of_q, of_k, of_v = shapes
    if (dims == 4 and of_q[0] != of_k[0]) or of_k != of_v or of_q[-1] != of_k[-1]:
        raise ValueError(f"q is {list(of_q)}, k {list(of_k)}, v {list(of_v)}; they do not fit together")
    return tensors


def _check_sums(cu_seqlens, device):
    if not isinstance(cu_seqlens, torch.Tensor):
        raise TypeError(f"cu_seqlens is {_kind(cu_seqlens)}; it must be a torch.Tensor, torch.int32 [sequences + 1]")
    if cu_seqlens.is_nested or cu_seqlens.layout != torch.strided:
        raise ValueError(f"cu_seqlens is {'nested' if cu_seqlens.is_nested else cu_seqlens.layout}; it must be dense (torch.strided)")
    if cu_seqlens.dtype != torch.int32 or cu_seqlens.dim() != 1 or len(cu_seqlens) < 2:
        raise ValueError(f"cu_seqlens is {cu_seqlens.dtype} {list(cu_seqlens.shape)}; it must be torch.int32 [sequences + 1], of one sequence at least")
    if cu_seqlens.device not in (torch.device("cpu"), device):
        raise ValueError(f"cu_seqlens is on {cu_seqlens.device}; it must be on the CPU, or with q on {device}")


def _cast(*tensors):
    """As torch.autocast wants them, where it is on."""
    kind = tensors[0].device.type
    if kind not in ("cuda", "cpu") or not torch.is_autocast_enabled(kind):
        return tensors
    return tuple(x.to(torch.get_autocast_dtype(kind)) if x.dtype in DTYPES else x for x in tensors)


def _number(name, value, kind, wanted):
    """The value; TypeError where it is no number of that kind. A bool is none, and neither is a tensor, whose value may be on a device."""
    if isinstance(value, bool) or not isinstance(value, kind):
        raise TypeError(f"{name} is {_kind(value)}; it must be {wanted}")
    return value


# What makes of a row, as a library describes an option, the function that checks a value and returns it as the library takes it.
def _switch(row):
    def take(value):
        if not isinstance(value, bool):
            raise TypeError(f"{row['name']} is {_kind(value)}; it must be True or False, and other masks are not taken")
        return value

    return take


def _whole_number(row):
    name, least, most, wanted = row["name"], row["least"], row["most"], f"an int, {row['range']}"

    def take(value):
        if not least <= _number(name, value, INTEGER, wanted) <= most:
            raise ValueError(f"{name} is {value}; it must be {row['range']}")
        return int(value)

    return take


def _real(row):
    name, least, most, optional = row["name"], row["least"], row["most"], row.get("optional", False)
    wanted = "a number, no tensor" + ", or None (the default)" * optional

    def take(value):
        if value is None and optional:  # the library's default
            return None
        if not least <= _number(name, value, REAL, wanted) <= most:
            raise ValueError(f"{name} is {value}; it must be {row['range']}")
        return float(value)

    return take


def _of_256(row):
    name = row["name"]

    def take(value):
        if not 0 <= _number(name, value, REAL, "a number, no tensor: 0 or more, and less than 1") < 1:
            raise ValueError(f"{name} is {value}; it must be 0 or more, and less than 1")
        n = round(float(value) * 256)
        if value > 0 and not 0 < n < 256:
            raise ValueError(f"{name} is {value}, which rounds to {n} of 256; it must be 1 to 255 of 256, or 0")
        return n

    return take


def _seed(row):
    name = row["name"]

    def take(value):
        if value is None:  # a random one
            return None
        if not 0 <= _number(name, value, INTEGER, "an int, no tensor, or None") < 2**64:
            raise ValueError(f"{name} is {value}; it must be 0 to 2^64 - 1")
        return int(value)

    return take


KINDS = {"on_off": _switch, "whole_number": _whole_number, "number": _real, "of_256": _of_256, "seed": _seed}


def _scalars(options, given):
    """The options by name, as the library takes them; None is a default, or a seed that is not given. options: those of a _Library."""
    return {name: take(given[name]) for name, take in options if name in given}


def _options(q, given, variants, forward=FORWARD):
    """(pairs of an option's name and value, the seed of dropout, variants): what a program depends on, and what comes with a launch. forward:
    the step whose kernels serve."""
    options = _scalars(_library(forward, q.device.type).options, given)
    for step, variant in zip((forward, BACKWARD), variants, strict=True):
        if variant is None:
            continue
        if not isinstance(variant, str):
            raise TypeError(f"a variant of {step} is {_kind(variant)}; it must be a name, or None (the best)")
        if variant not in _library(step, q.device.type).variants:
            raise ValueError(f"{step} has no variant {variant!r}")
    seed = options.pop("dropout_seed")
    if options["dropout"] == 0:
        seed = 0
    elif seed is None:
        seed = torch.randint(2**63 - 1, (), device="cpu").item()  # torch.manual_seed sets it
    return tuple(options.items()), seed, variants


def _is_off(value):
    return isinstance(value, REAL) and not isinstance(value, bool) and value == 0


def attention(
    q, k, v, *, causal=False, window=0, scale=None, dropout=0.0, dropout_seed=None, softcap=0.0, alibi=0.0, bias=None, sinks=None, lengths=None,
    variant=None, backward_variant=None,
):  # fmt: skip
    """softmax(scale · q kᵀ) v, differentiable by q, k and v.

    q [batch, heads, seq_q, dim], k and v [batch, kv_heads, seq_k, dim]; heads is a multiple of kv_heads; dim is at most 256; float32,
    float16 or bfloat16, all alike, on one device, with any strides (a tensor whose rows are not contiguous is copied). Returns
    [batch, heads, seq_q, dim], dense, in the order that q has in memory.
    causal (a bool): query i sees the keys j <= i + seq_k - seq_q; window (an int): those with |i + seq_k - seq_q - j| < window; 0: no window.
    scale: by default 1/sqrt(dim). dropout: the share of pairs that are left out, rounded to n/256; the kept ones are multiplied by
    256/(256 - n). The same dropout_seed gives the same pairs; without one it comes from torch's CPU generator.

    Options of scores, at inference: they have no gradients, and step 09's kernels serve, without dropout. A scaled score s of query i and key j
    becomes, in this order:
    softcap (a number, 0: none): softcap · tanh(s / softcap).
    bias: s + bias, of q's type, broadcastable to [batch, heads, seq_q, seq_k]; -inf hides a key. An expanded tensor (strides of 0) is not
    copied, unless it is the same for all keys. No bool.
    alibi (a number, 0: none; 8 as a rule): s - slope · |i + seq_k - seq_q - j|, where head h of n has the slope 2^(-alibi · (h + 1) / n), if
    n is a power of two. Slopes as a tensor are not taken.
    sinks [heads], float32: a logit more in each row's softmax, without a value.
    lengths [batch], int32: of a padded cache. Batch entry b has the keys 0 ... lengths[b] - 1, and lengths[b] is the seq_k of causal, window and
    alibi. On the CPU they are checked, and copied to the device, for which the host waits; on the device nobody checks: one below 0 counts
    as 0, one beyond seq_k as seq_k. A row that sees no key gets zeros.

    variant, backward_variant: kernels by name, as the steps' --list shows them; by default the best, and under
    torch.use_deterministic_algorithms one whose gradients have the same bits in every run. Dropout has none: then a call whose gradients are
    needed raises ValueError, or warns (warn_only=True). Under torch.autocast tensors are cast to its type.
    Raises TypeError for an argument of another type, and ValueError for what cannot be served, with the reason and before the forward pass;
    RuntimeError for a failed launch, and for a second derivative; FileNotFoundError without libraries.
    """
    q, k, v = _check({"q": q, "k": k, "v": v}, 4)
    given = {"causal": causal, "window": window, "scale": scale, "dropout": dropout, "dropout_seed": dropout_seed}
    given |= {"softcap": softcap, "alibi": alibi}
    if bias is None and sinks is None and lengths is None and _is_off(softcap) and _is_off(alibi):
        return _attend(q, k, v, None, None, _options(q, given, (variant, backward_variant)))
    return _attend_with_scores(q, k, v, bias, sinks, lengths, _options(q, given, (variant, backward_variant), SCORED))


def attention_varlen(q, k, v, cu_seqlens, *, causal=False, window=0, scale=None, dropout=0.0, dropout_seed=None, variant=None, backward_variant=None):
    """The same for sequences of different lengths, packed one behind another: a query sees keys of its own sequence alone.

    q [tokens, heads, dim], k and v [tokens, kv_heads, dim]. cu_seqlens [sequences + 1], int32: sums of the lengths, from 0 to tokens.
    On the CPU it is checked, and copied to the device, for which the host waits; on the device it is used as it is, and nothing waits: a
    falling one then gives wrong results. There it may end before the tokens do: the rest sees nothing, gets zeros, and nobody sees it. Returns
    [tokens, heads, dim]. With dropout the scalar kernels serve, which are about thirty times slower (the README's table, 4096 tokens). No
    kernel gives gradients of packed sequences with the same bits in every run (torch.use_deterministic_algorithms).
    """
    q, k, v = _check({"q": q, "k": k, "v": v}, 3)
    _check_sums(cu_seqlens, q.device)
    given = {"causal": causal, "window": window, "scale": scale, "dropout": dropout, "dropout_seed": dropout_seed}
    options = _options(q, given, (variant, backward_variant))
    cu_seqlens = cu_seqlens.resolve_neg().contiguous()
    checked = cu_seqlens if cu_seqlens.device.type == "cpu" else None
    as_heads = [x.transpose(0, 1)[None] for x in (q, k, v)]
    return _attend(*as_heads, cu_seqlens.to(q.device), checked, options)[0].transpose(0, 1)


def _check_linear(x, weight, bias, others, activation, out_dtype, constant_weights, variant):
    """Raises TypeError or ValueError for what the library cannot see. others: tensors by name, with the type that each must have. Returns x,
    weight and bias as torch.autocast wants them, and the result's type."""
    given = {"x": x, "weight": weight} | ({} if bias is None else {"bias": bias})
    _check_dense(given | {name: tensor for name, (tensor, _) in others.items()})
    x, weight, *rest = _cast(*given.values())
    bias = rest[0] if rest else None
    out_dtype = weight.dtype if out_dtype is None else out_dtype
    for name, kind, value in [("activation", str, activation), ("out_dtype", torch.dtype, out_dtype), ("constant_weights", bool, constant_weights)]:
        if not isinstance(value, kind):
            raise TypeError(f"{name} is {_kind(value)}; it must be of type {kind.__name__}")
    if variant is not None and not isinstance(variant, str):
        raise TypeError(f"a variant of {LINEAR} is {_kind(variant)}; it must be a name, or None (the best)")
    for name, dtype in [("x", x.dtype), ("weight", weight.dtype), ("out_dtype", out_dtype)]:
        if dtype not in DTYPES:
            raise ValueError(f"{name} is {dtype}; it must be one of {', '.join(map(str, DTYPES))}")
    if bias is not None:
        others = others | {"bias": (bias, weight.dtype)}
    for name, (tensor, dtype) in (others | {"weight": (weight, weight.dtype)}).items():
        if tensor.device != x.device:
            raise ValueError(f"{name} is on {tensor.device}, x on {x.device}; they must be on one device")
        if tensor.dtype is not dtype:
            raise ValueError(f"{name} is {tensor.dtype}; it must be {dtype}")
    if bias is not None and bias.shape != weight.shape[:-1]:
        raise ValueError(f"bias is {list(bias.shape)}; it must be {list(weight.shape[:-1])}, as weight's rows")
    if x.dim() < 1 or weight.dim() < 2 or x.shape[-1] != weight.shape[-1]:
        raise ValueError(f"x is {list(x.shape)}, weight {list(weight.shape)}; they do not fit together")
    if max(*x.shape, *weight.shape, x.shape[:-1].numel()) >= 2**31:
        raise ValueError(f"x is {list(x.shape)}, weight {list(weight.shape)}; no size may be 2^31 or more")
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, weight, *(tensor for tensor, _ in others.values()))):
        raise ValueError("these products have no gradients; call them under torch.no_grad() or torch.inference_mode()")
    return x, weight, bias, out_dtype


def _product(x, weight, bias, ids, routing, out_dtype, activation, constant_weights, variant):
    """x [samples, channels, m, k], weight [weight samples, weight channels, n, k]; ids and routing [m, top], or None. Returns the result,
    [samples, channels, m, n]."""
    x, weight, device = _rows(x), _rows(weight), x.device
    library = _library(LINEAR, device.type)
    if variant is not None and variant not in library.variants:
        raise ValueError(f"{LINEAR} has no variant {variant!r}")
    y = torch.empty(*x.shape[:3], weight.shape[2], dtype=out_dtype, device=device)
    bias, ids, routing = (None if tensor is None else tensor.resolve_neg().contiguous() for tensor in (bias, ids, routing))
    if y.numel() == 0:
        return y
    places = [None if tensor is None else tensor.data_ptr() for tensor in (x, weight, y, bias, ids, routing)]
    starts = tuple([None if place is None else place % 16 for place in places])
    strides = (x.stride(), weight.stride(), y.stride())
    top = 0 if ids is None else ids.shape[1]
    with NOTHING if device.type == "cuda" else SIMULATOR:
        program = library.program(
            device.index or 0, (x.dtype, weight.dtype, out_dtype), activation, x.shape, weight.shape, top, strides, starts, constant_weights, variant)
        a, b, c, *others = places
        library.run(program, _LinearAddresses(a, b, others[0], c, *others[1:]), device)
    return y


def linear(x, weight, bias=None, *, activation="none", out_dtype=None, constant_weights=False, variant=None):
    """activation(x weightᵀ + bias) for few tokens, at inference: it has no gradients.

    weight [n, k], float16 or bfloat16: then all rows of x [..., k] are tokens, 16 at most; returns [..., n]. Batches of weights,
    [channels, n, k] or [samples, channels, n, k], meet x of as many dimensions, [..., tokens, k]: x may have a multiple of weight's samples
    and of its channels, and neighbours share weights, as query heads share keys; returns [..., tokens, n].
    x: float32 or of weight's type, with any strides (a tensor whose rows are not contiguous is copied). bias: of weight's type, and its shape
    without k. activation: "none", "relu", "gelu" (by erf) or "silu". out_dtype: of the result, by default weight's.
    constant_weights: a promise that no kernel that may still run writes weight. On devices of 9.0 or newer a kernel may then read it before
    the one before has ended, which is faster. Without the promise it waits.
    variant: a kernel by name, as the step's --list shows them; by default the best. Under torch.autocast tensors are cast to its type.
    Raises TypeError and ValueError for what cannot be served, RuntimeError for a failed launch, FileNotFoundError without the library.
    """
    x, weight, bias, out_dtype = _check_linear(x, weight, bias, {}, activation, out_dtype, constant_weights, variant)
    if weight.dim() > 2 and x.dim() != weight.dim() or weight.dim() > 4:
        raise ValueError(f"x is {list(x.shape)}, weight {list(weight.shape)}; batches of weights have 3 or 4 dimensions, and x as many")
    n, k = weight.shape[-2:]
    tokens = x.reshape(1, 1, x.shape[:-1].numel(), k) if weight.dim() == 2 else x.reshape((1,) * (4 - x.dim()) + x.shape)
    weights = weight.reshape((1,) * (4 - weight.dim()) + weight.shape)
    y = _product(tokens, weights, bias, None, None, out_dtype, activation, constant_weights, variant)
    return y.reshape(*x.shape[:-1], n)


def routed_linear(x, weight, expert_ids, routing, bias=None, *, activation="none", out_dtype=None, variant=None):
    """For each token Σ over its slots of routing[slot] · activation(x weight[expert_ids[slot]]ᵀ + bias[expert_ids[slot]]): a mixture of
    experts, at inference: it has no gradients. Slots are added in their order, so two runs give the same bits.

    x [..., k], weight [experts, n, k], expert_ids [..., slots] int32, routing [..., slots] float32, bias [experts, n] or None. Nobody checks
    the ids, and nothing waits: a slot whose id is no expert's adds nothing. Returns [..., n]. All else is as in `linear`, any number of tokens.
    """
    others = {"expert_ids": (expert_ids, torch.int32), "routing": (routing, torch.float32)}
    x, weight, bias, out_dtype = _check_linear(x, weight, bias, others, activation, out_dtype, False, variant)
    if weight.dim() != 3:
        raise ValueError(f"weight is {list(weight.shape)}; it must be [experts, n, k]")
    if expert_ids.shape[:-1] != x.shape[:-1] or expert_ids.dim() != x.dim() or routing.shape != expert_ids.shape:
        raise ValueError(f"x is {list(x.shape)}, expert_ids {list(expert_ids.shape)}, routing {list(routing.shape)}; they do not fit together")
    tokens, top = x.shape[:-1].numel(), expert_ids.shape[-1]
    if top == 0:
        raise ValueError("expert_ids has no slots; a token must name 1 expert or more")
    ids, routing = expert_ids.reshape(tokens, top), routing.reshape(tokens, top)
    y = _product(x.reshape(1, 1, tokens, x.shape[-1]), weight[None], bias, ids, routing, out_dtype, activation, False, variant)
    return y.reshape(*x.shape[:-1], weight.shape[1])
