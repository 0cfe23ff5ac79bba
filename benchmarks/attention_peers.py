"""An attention step beside the kernels that PyTorch has, and beside the roof of mma.sync, in one run.

    python benchmarks/attention_peers.py --json results/h200/attention_peers.json

Needs an NVIDIA GPU, a Python with PyTorch, and the step as a library (make gpu builds build/gpu/lib/libattention_STEP.so). The peers are
reached through torch.nn.functional.scaled_dot_product_attention: FlashAttention-2, cuDNN and the memory-efficient kernel. The roof
is the kernel of step 00 that only multiplies. All work on the same [batch, heads, seq, dim] tensors, random normal, and take turns
(benchmarks/turns.py). The output of each is checked in the same run: sampled rows of every head against float64, by the rule of the
steps. A contender that refuses a problem is left out of that cell, with its reason.

Each launch of ours sets the limit of its shared memory anew, which costs the host microseconds; the GPU has work queued meanwhile.

Exit status 1 if a result is wrong; 3 without PyTorch, without a GPU, or if the device fails.
"""

import argparse
import contextlib
import ctypes
import datetime
import itertools
import json
import math
import random
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from turns import Contender, entry, measure, to_text

ROOT = Path(__file__).resolve().parent.parent
TOKENS, WIDTH = 16384, 2048  # of a cell: batch · seq; heads · dim, at most
ROOF = "roof of mma.sync"
PEERS = {"FlashAttention-2": "FLASH_ATTENTION", "cuDNN": "CUDNN_ATTENTION", "memory-efficient": "EFFICIENT_ATTENTION"}
DIMS, LENGTHS = (64, 128), (512, 2048, 4096, 16384)
TARGETS = LENGTHS[1:]  # where something is claimed
SAMPLE = 64  # rows of each head that are checked


@dataclass(frozen=True)
class Cell:
    """A problem: square, as many key/value heads as heads."""

    seq: int
    dim: int
    causal: bool
    dtype: str = "fp16"

    @property
    def batch(self):
        return TOKENS // self.seq

    @property
    def heads(self):
        return WIDTH // self.dim

    @property
    def name(self):
        return f"d {self.dim}, {self.seq} tokens{', causal' if self.causal else ''}, {self.dtype}"

    @property
    def operations(self):
        """4 · dim for each pair of a query and a key that it sees."""
        pairs = self.seq * (self.seq + 1) / 2 if self.causal else self.seq**2
        return 4 * self.dim * pairs * self.heads * self.batch


def all_cells():
    cells = [Cell(seq, dim, causal) for dim in DIMS for causal in (False, True) for seq in LENGTHS]
    cells += [Cell(4096, dim, causal, "bf16") for dim in DIMS for causal in (False, True)]
    return cells + [Cell(4096, dim, causal) for dim in (96, 256) for causal in (False, True)]


# ---- our side ----


class Tensor(ctypes.Structure):
    """As in benchmarks/attention_library.h, and so are the others."""

    _fields_ = [("data", ctypes.c_void_p), *((f"{name}_stride", ctypes.c_int64) for name in ("batch", "head", "row"))]


class Problem(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int) for name in ("batch", "heads", "kv_heads", "seq_q", "seq_k", "dim", "causal", "window")),
        ("scale", ctypes.c_float),
        ("dtype", ctypes.c_char_p),
        *((name, Tensor) for name in "qkvo"),
        ("lse", ctypes.c_void_p),
    ]


class Refused(Exception):
    """A contender does not take a problem; the text says why."""


class Library:
    """An attention step, loaded. Throws OSError where the file is not there or is no library."""

    def __init__(self, path):
        self._c = ctypes.CDLL(str(path))
        pointer, text = ctypes.c_void_p, ctypes.c_char_p
        for name, result, arguments in [
            ("describe", text, []),
            ("prepare", pointer, [text, ctypes.POINTER(Problem)]),
            ("prepare_roof", pointer, [text, ctypes.c_double]),
            ("operations", ctypes.c_double, [pointer]),
            ("launch", ctypes.c_bool, [pointer]),
            ("release", None, [pointer]),
            ("error", text, []),
        ]:
            function = getattr(self._c, f"attention_{name}")
            function.restype, function.argtypes = result, arguments

    def describe(self):
        """The step, its default variant, its variants, and the toolkit that built it."""
        return json.loads(self._c.attention_describe())

    @contextlib.contextmanager
    def _program(self, handle):
        """(launch, operations of a launch)."""
        if not handle:
            raise Refused(self._error())

        def launch():
            if not self._c.attention_launch(handle):
                raise RuntimeError(self._error())

        try:
            yield launch, self._c.attention_operations(handle)
        finally:
            self._c.attention_release(handle)

    def _error(self):
        return self._c.attention_error().decode()

    def variant(self, name, problem):
        return self._program(self._c.attention_prepare(name.encode(), ctypes.byref(problem)))

    def roof(self, dtype, operations):
        return self._program(self._c.attention_prepare_roof(dtype.encode(), operations))


# ---- PyTorch's side ----


def sampled_rows(seq, seed):
    """Numbers of the rows that are checked, in order: the ends, the edges of tiles of 16 to 128 rows, and others at random."""
    if seq <= SAMPLE:
        return list(range(seq))
    edges = {0, seq - 1, *(at for tile in (16, 32, 64, 128) for at in (tile, seq // tile * tile))}
    rows = {row for edge in edges for row in (edge - 1, edge, edge + 1) if 0 <= row < seq}
    rows |= set(random.Random(seed).sample(sorted(set(range(seq)) - rows), SAMPLE - len(rows)))
    return sorted(rows)


class Truth:
    """What the sampled rows of O and LSE must be, in double precision, and what an honest implementation gets."""

    def __init__(self, torch, q, k, v, causal, rows):
        self._torch = torch
        self._rows = torch.tensor(rows, device=q.device)
        hidden = torch.arange(k.shape[2], device=q.device) > self._rows[:, None] if causal else None

        def attend(real, rounded):
            scores = q[:, :, self._rows].to(real) @ k.to(real).mT / math.sqrt(q.shape[-1])
            if causal:
                scores = scores.masked_fill(hidden, -math.inf)
            p = scores.softmax(-1)
            return (p.to(rounded).to(real) @ v.to(real)).to(rounded).double(), scores.logsumexp(-1)

        self._o, self._lse = attend(torch.float64, torch.float64)
        self._honest, _ = attend(torch.float32, q.dtype)

    def worst_ratio(self, o, lse=None):
        """The largest error over what docs/checking.md allows it, of O [batch, heads, seq, dim] and of LSE [batch, heads, seq];
        infinite where an element is not finite. At most 1 is right."""
        torch = self._torch
        if not o.isfinite().all() or (lse is not None and not lse.isfinite().all()):
            return math.inf
        error, honest = ((of - self._o).abs() for of in (o[:, :, self._rows].double(), self._honest))
        smallest, bits = (-24, 11) if o.dtype == torch.float16 else (-133, 8)
        exponent = torch.frexp(self._o.abs().amax(-1)).exponent
        floor = 2 * torch.exp2((exponent - bits).clamp(min=smallest).double())
        ratios = [
            (error.amax(-1) / (2 * torch.maximum(honest.amax(-1), floor))).max(),
            error.mean() / (1.5 * torch.maximum(honest.mean(), floor.mean())),
        ]
        if lse is not None:
            ratios.append((lse[:, :, self._rows].double() - self._lse).abs().max() / 1e-3)
        return max(ratio.item() for ratio in ratios)


class Gpu:
    """The machine of turns.measure()."""

    def __init__(self, torch):
        self._torch = torch

    def pause(self, ms):
        self._torch.cuda.synchronize()
        time.sleep(ms / 1000)

    def _event(self):
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def each(self, launch, wake, count):
        for _ in range(wake):
            launch()
        events = [self._event()]
        for _ in range(count):
            launch()
            events.append(self._event())
        self._torch.cuda.synchronize()
        return [begin.elapsed_time(end) for begin, end in itertools.pairwise(events)]

    def together(self, launch, count):
        for _ in range(count):
            launch()
        begin = self._event()
        for _ in range(count):
            launch()
        end = self._event()
        begin.synchronize()
        clock = sm_clock_mhz()
        went_on = not end.query()  # else the answer may be of a moment after
        self._torch.cuda.synchronize()
        return begin.elapsed_time(end) / count, clock if went_on else None


def sm_clock_mhz():
    """The SM clock of the first GPU right now; None where NVML, which nvidia-smi asks, cannot say. It answers within microseconds."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    device, mhz = ctypes.c_void_p(), ctypes.c_uint()
    failed = (
        nvml.nvmlInit_v2()
        or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
        or nvml.nvmlDeviceGetClockInfo(device, 1, ctypes.byref(mhz))  # NVML_CLOCK_SM
    )
    return None if failed else mhz.value


def nvidia_smi(query):
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader", "--id=0"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def tensor_of(data):
    return Tensor(data.data_ptr(), *data.stride()[:3])


def first_line(error):
    return str(error).strip().splitlines()[0]


def run_cell(torch, library, variants, cell, options, seed):
    """The cell as JSON."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.manual_seed(seed)
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[cell.dtype]
    shape = (cell.batch, cell.heads, cell.seq, cell.dim)
    q, k, v = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(3))
    v += 0.5  # as in the steps' own inputs: outputs keep away from zero
    o, lse = torch.empty_like(q), torch.empty(shape[:3], device="cuda")
    truth = Truth(torch, q, k, v, cell.causal, sampled_rows(cell.seq, seed))
    contenders, refused = [], {}

    def enter(name, operations, launch, result):
        """Takes a contender in, once its output is judged. `result` launches it and returns what it wrote."""
        ratio = truth.worst_ratio(*result())
        contenders.append(Contender(name, operations, launch, "ok" if ratio <= 1 else "WRONG", ratio))

    with contextlib.ExitStack() as held:
        launch, operations = held.enter_context(library.roof(cell.dtype, cell.operations))
        contenders.append(Contender(ROOF, operations, launch))
        for name, backend in PEERS.items():

            def peer(backend=backend):
                with sdpa_kernel(getattr(SDPBackend, backend)):
                    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=cell.causal)

            try:
                enter(name, cell.operations, peer, lambda peer=peer: [peer()])
            except RuntimeError as error:
                refused[name] = first_line(error)
        problem = Problem(
            *(cell.batch, cell.heads, cell.heads, cell.seq, cell.seq, cell.dim, int(cell.causal), 0, math.nan, cell.dtype.encode()),
            *(tensor_of(data) for data in (q, k, v, o)),
            lse.data_ptr(),
        )
        for name in variants:
            try:
                launch, operations = held.enter_context(library.variant(name, problem))
            except Refused as error:
                refused[name] = first_line(error)
                continue
            o.fill_(math.nan)
            lse.fill_(math.nan)
            enter(name, operations, launch, lambda launch=launch: (launch(), (o, lse))[1])
        measure(contenders, Gpu(torch), options.rounds, options.repetitions, options.pause_ms, options.sustained_ms)
    others = [contender for contender in contenders if contender.name == ROOF or contender.name in PEERS]
    return {
        "problem": {**asdict(cell), "batch": cell.batch, "heads": cell.heads},
        "contenders": [entry(contender, others) for contender in contenders],
        "refused": refused,
    }


# ---- what it all says ----


def claims(cells, variant):
    """What may be said of a variant, with the targets: [{what, value, target}]. `cells` as in the JSON; what they do not cover is left
    out."""
    measured_at = {}  # {(seq, dim, causal, dtype): contenders by name}
    for measured in cells.values():
        problem = measured["problem"]
        named = {contender["name"]: contender for contender in measured["contenders"]}
        measured_at[problem["seq"], problem["dim"], problem["causal"], problem["dtype"]] = named

    def ours(seq, dim, causal, dtype):
        return measured_at.get((seq, dim, causal, dtype), {}).get(variant)

    def median_ratios(other, dims=DIMS, lengths=TARGETS):
        problems = itertools.product(lengths, dims, (False, True), ["fp16"])
        found = [contender["of"] for contender in itertools.starmap(ours, problems) if contender]
        return [of[other]["median"] for of in found if other in of]

    pairs = [(ours(*where, "bf16"), ours(*where, "fp16")) for *where, dtype in measured_at if dtype == "bf16"]
    bf16_over_fp16 = [bf16["tflops"]["median"] / fp16["tflops"]["median"] for bf16, fp16 in pairs if bf16 and fp16]
    figures = [
        ("geometric mean of the speed over FlashAttention-2's", statistics.geometric_mean, median_ratios("FlashAttention-2"), 1.15),
        ("the least of these", min, median_ratios("FlashAttention-2"), 1.05),
        ("geometric mean of the speed over cuDNN's", statistics.geometric_mean, median_ratios("cuDNN"), None),
        ("least share of the roof at d 128 from 4096 tokens", min, median_ratios(ROOF, [128], TARGETS[1:]), 0.70),
        ("bf16 over fp16, the least", min, bf16_over_fp16, 0.97),
    ]
    return [{"what": what, "value": of(values), "target": target} for what, of, values, target in figures if values]


def print_cell(name, measured):
    print(f"\n{name}")
    columns = [ROOF, *PEERS]
    print(f"  {'':20} {'verdict':8} {'burst ms':>9} {'TFLOP/s':>8}" + "".join(f"{'of ' + c:>21}" for c in columns) + f"{'sustained TFLOP/s':>19} {'MHz':>5}")
    for contender in measured["contenders"]:
        of = [contender["of"].get(column) for column in columns]
        cells = "".join(f"{s['median']:9.3f} {s['min']:.3f}–{s['max']:.3f}" if s else f"{'-':>21}" for s in of)
        print(
            f"  {contender['name']:20} {contender['verdict']:8} {contender['burst_ms']['median']:9.4f} {contender['tflops']['median']:8.1f}"
            f"{cells}{contender['sustained_tflops']:19.1f} {contender['sm_clock_mhz'] or '-':>5}"
        )
    for contender, reason in measured["refused"].items():
        print(f"  {contender:20} refused: {reason}")
    sys.stdout.flush()


def import_torch():
    """PyTorch; leaves the program where it is missing or sees no GPU."""
    try:
        import torch
    except ImportError:
        refuse(f"{sys.executable} has no PyTorch, whose kernels are the peers; run this with a Python that has it")
    if not torch.cuda.is_available():
        refuse("PyTorch sees no GPU; this benchmark runs nowhere else")
    return torch


def refuse(reason):
    print(f"attention_peers: {reason}", file=sys.stderr)
    sys.exit(3)


def machine(torch, built, options):
    describe = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    chosen = [word for flag in ("variant", "cell") for value in getattr(options, flag) or [] for word in (f"--{flag}", value)]
    return {
        "name": torch.cuda.get_device_name(),
        "driver_version": nvidia_smi("driver_version"),
        "clocks.max.sm": nvidia_smi("clocks.max.sm"),
        "power.limit": nvidia_smi("power.limit"),
        "nvcc": built["toolkit"],
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": options.commit or describe.stdout.strip() or "unknown",
        "command": ["benchmarks/attention_peers.py", "--step", options.step, *chosen],  # without this machine's paths
    }


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--step", default="05_flash_v2", help="which attention step (default: %(default)s)")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "gpu", help="the gpu preset's build folder")
    parser.add_argument("--variant", action="append", help="of the step; may be repeated; the claims are the first one's (default: the step's)")
    parser.add_argument("--cell", action="append", help="only cells whose name holds this, as 'd 128' or '4096 tokens, causal'; may be repeated")
    parser.add_argument("--rounds", type=int, default=7, help="in each, everyone has one turn (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="of a turn (default: %(default)s)")
    parser.add_argument("--pause-ms", type=int, default=5, help="before each turn (default: %(default)s)")
    parser.add_argument("--sustained-ms", type=int, default=200, help="without a pause; the second half counts (default: %(default)s)")
    parser.add_argument("--commit", help="of the sources, where the repository's history is not at hand")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    if min(options.rounds, options.repetitions, options.sustained_ms) < 1 or options.pause_ms < 0:
        parser.error("--rounds, --repetitions and --sustained-ms are at least 1, --pause-ms at least 0")
    try:
        library = Library(options.build / "lib" / f"libattention_{options.step}.so")
    except OSError as error:
        parser.error(f"{error}; make gpu builds it")
    known = [variant["name"] for variant in library.describe()["variants"]]
    for name in options.variant or []:
        if name not in known:
            parser.error(f"--variant: {options.step} has no variant '{name}' (it has: {', '.join(known)})")
    cells = [cell for cell in all_cells() if not options.cell or any(part in cell.name for part in options.cell)]
    if not cells:
        parser.error("--cell: no cell is called so; there are:\n" + "\n".join(cell.name for cell in all_cells()))
    return options, library, cells


def main(arguments=None):
    options, library, cells = parse(arguments)
    torch = import_torch()
    built = library.describe()
    variants = options.variant or [built["default"]]
    about = machine(torch, built, options)
    print(f"{options.step}: {', '.join(variants)}, on {about['name']}; PyTorch {about['torch']}, cuDNN {about['cudnn']}")
    results = {}
    try:
        for seed, cell in enumerate(cells, 1):
            results[cell.name] = run_cell(torch, library, variants, cell, options, seed)
            torch.cuda.empty_cache()  # the library allocates for itself
            print_cell(cell.name, results[cell.name])
    except (RuntimeError, Refused) as error:
        refuse(error)
    said = claims(results, variants[0])
    print()
    for claim in said:
        print(f"{claim['what']}: {claim['value']:.3f}" + (f" (target {claim['target']})" if claim["target"] else ""))
    if options.json:
        settings = {name: getattr(options, name) for name in ("rounds", "repetitions", "pause_ms", "sustained_ms")}
        report = {"machine": about, "step": options.step, "variants": variants, **settings, "cells": results, "claims": said}
        options.json.write_text(to_text(report))
    wrong = [f"{c['name']} at {name}" for name, cell in results.items() for c in cell["contenders"] if c["verdict"] == "WRONG"]
    for text in wrong:
        print(f"WRONG: {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
