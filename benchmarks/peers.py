"""What the benchmarks of attention beside other people's kernels share: problems, our kernels as a library, the GPU's clock, what is
printed and written, the command line (attention_peers.py: the forward pass; backward_peers.py: the backward pass; packed_peers.py:
packed sequences, both passes; dropout_peers.py: dropout, both passes; sparse_peers.py: sparse masks, both passes; decoding_peers.py: few
queries and many keys; cliffs.py: what takes far longer than a neighbour).

All need an NVIDIA GPU, a Python with PyTorch, and the step as a library (make gpu builds build/gpu/lib/libattention_STEP.so). All
contenders work on the same [batch, heads, seq, dim] tensors and take turns (benchmarks/turns.py). The results of each are checked in
the same run, in sampled rows of every head, against float64. A contender that refuses a problem is left out of that cell, with its
reason.

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
import re
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
SAMPLE = 64  # rows of each head that are checked


@dataclass(frozen=True)
class Benchmark:
    """One of the programs."""

    name: str
    about: str  # for --help
    step: str  # unless --step names another
    default_variants: object  # of what the library says of itself: the names of those that run unless --variant says otherwise
    cells: list
    measure_cell: object  # (torch, library, variants, cell, options, seed) -> the cell as JSON
    claims: object  # (cells as in the JSON, variants) -> [{what, value, target}]


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
    def shape(self):
        """Of Q, and of all others."""
        return self.batch, self.heads, self.seq, self.dim

    @property
    def pairs(self):
        """Of a query and a key that it sees."""
        of_head = self.seq * (self.seq + 1) / 2 if self.causal else self.seq**2
        return of_head * self.heads * self.batch


# ---- our side ----


def _structures():
    """Those of library/attention_library.h, as ctypes has them, by their names without "Attention"."""
    header = re.sub(r"//.*", "", (ROOT / "library" / "attention_library.h").read_text())
    types = {"int": ctypes.c_int, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "float": ctypes.c_float}
    for name, body in re.findall(r"struct Attention(\w+) \{(.*?)\n\};", header, re.DOTALL):
        fields = []
        for declaration in filter(None, map(str.strip, body.split(";"))):
            type_, names = re.fullmatch(r"(?:const )?(?:struct Attention)?(\w+)\s*(.*)", declaration, re.DOTALL).groups()
            pointer = ctypes.c_char_p if type_ == "char" else ctypes.c_void_p
            fields += [(field.strip("* \n"), pointer if "*" in field else types[type_]) for field in names.split(",")]
        types[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return types


Tensor, Sparse, Problem, Gradients, Addresses = map(_structures().get, ("Tensor", "Sparse", "Problem", "Gradients", "Addresses"))


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
            ("prepare_backward", pointer, [text, ctypes.POINTER(Problem), ctypes.POINTER(Gradients)]),
            ("prepare_roof", pointer, [text, ctypes.c_double]),
            ("scratch_bytes", ctypes.c_size_t, [pointer]),
            ("operations", ctypes.c_double, [pointer]),
            ("launch", ctypes.c_bool, [pointer, pointer, pointer]),
            ("launch_on", ctypes.c_bool, [pointer, ctypes.POINTER(Addresses), pointer, pointer]),
            ("read_only", ctypes.c_bool, [pointer, ctypes.c_size_t, pointer, pointer]),
            ("plan_bytes", ctypes.c_size_t, [pointer]),
            ("plan", ctypes.c_bool, [pointer, pointer, pointer, pointer]),
            ("planned_scratch_bytes", ctypes.c_size_t, [pointer]),
            ("launch_planned", ctypes.c_bool, [pointer, pointer, pointer, pointer, pointer]),
            ("release", None, [pointer]),
            ("error", text, []),
        ]:
            function = getattr(self._c, f"attention_{name}", None)
            if function is None:
                continue  # the simulator's libraries have no roof, and no kernel that only reads
            function.restype, function.argtypes = result, arguments
        self._on_gpu = hasattr(self._c, "attention_prepare_roof")

    def describe(self):
        """The step, its default variant, its variants, and the toolkit that built it."""
        return json.loads(self._c.attention_describe())

    def _memory(self, size):
        """(what holds it, its address), at a multiple of 256 bytes."""
        if not size:
            return None, None
        if self._on_gpu:
            held = import_torch().empty(size, dtype=import_torch().uint8, device="cuda")
            return held, held.data_ptr()
        held = ctypes.create_string_buffer(size + 255)
        return held, ctypes.addressof(held) + -ctypes.addressof(held) % 256

    @contextlib.contextmanager
    def _program(self, handle, keep_plan=False):
        """(launch, operations of a launch). With `keep_plan` the plan is made now, and launches have it."""
        if not handle:
            raise Refused(self._error())

        def called(name, *arguments):
            if not getattr(self._c, f"attention_{name}")(handle, *arguments):
                raise RuntimeError(self._error())

        def launch():
            if keep_plan:
                called("launch_planned", None, plan, scratch, None)
            else:
                called("launch", scratch, None)

        try:
            sizes = ("plan_bytes", "planned_scratch_bytes") if keep_plan else ("scratch_bytes",)
            held = [self._memory(getattr(self._c, f"attention_{size}")(handle)) for size in sizes]
            plan, scratch = held[0][1], held[-1][1]
            if keep_plan:
                called("plan", None, plan, None)
            yield launch, self._c.attention_operations(handle)
        finally:
            self._c.attention_release(handle)

    @contextlib.contextmanager
    def variant_elsewhere(self, name, problem):
        """launch(addresses) of a variant of the forward pass: for tensors there, in PyTorch's current stream."""
        handle = self._c.attention_prepare(name.encode(), ctypes.byref(problem))
        if not handle:
            raise Refused(self._error())
        held, scratch = self._memory(self._c.attention_scratch_bytes(handle))

        def launch(addresses):
            if not self._c.attention_launch_on(handle, ctypes.byref(addresses), scratch, self._stream()):
                raise RuntimeError(self._error())

        try:
            yield launch
        finally:
            del held
            self._c.attention_release(handle)

    def read_only(self, data, size, found):
        """Launches a kernel that reads so many bytes, in PyTorch's current stream. `data`, `found`: addresses; it may leave 4 bytes there."""
        if not self._c.attention_read_only(data, size, found, self._stream()):
            raise RuntimeError(self._error())

    def _stream(self):
        return import_torch().cuda.current_stream().cuda_stream if self._on_gpu else None

    def _error(self):
        return self._c.attention_error().decode()

    def variant(self, name, problem, gradients=None, keep_plan=False):
        """A variant of the forward pass; with gradients, of the backward pass."""
        if gradients is None:
            return self._program(self._c.attention_prepare(name.encode(), ctypes.byref(problem)), keep_plan)
        return self._program(self._c.attention_prepare_backward(name.encode(), ctypes.byref(problem), ctypes.byref(gradients)), keep_plan)

    def roof(self, dtype, operations):
        return self._program(self._c.attention_prepare_roof(dtype.encode(), operations))


def tensor_of(data):
    return Tensor(data.data_ptr(), *data.stride()[:3])


def problem_at(shape, dtype, tensors=(), lse=None, **others):
    """A problem of [batch, heads, seq, dim] with these tensors (q, k, v, o), and by name what else it has: options, or sizes that differ."""
    batch, heads, seq, dim = shape
    fields = {"batch": batch, "heads": heads, "kv_heads": heads, "seq_q": seq, "seq_k": seq, "dim": dim, "dtype": dtype.encode(), "lse": lse}
    return Problem(**fields | {"scale": math.nan} | dict(zip("qkvo", tensors, strict=False)) | others)


def problem_of(cell, q, k, v, o, lse):
    """The cell's problem with its tensors."""
    return problem_at(cell.shape, cell.dtype, map(tensor_of, (q, k, v, o)), lse.data_ptr(), causal=int(cell.causal))


# ---- the other side ----


def sampled_rows(seq, seed):
    """Numbers of the rows that are checked, in order: the ends, the edges of tiles of 16 to 128 rows, and others at random."""
    if seq <= SAMPLE:
        return list(range(seq))
    edges = {0, seq - 1, *(at for tile in (16, 32, 64, 128) for at in (tile, seq // tile * tile))}
    rows = {row for edge in edges for row in (edge - 1, edge, edge + 1) if 0 <= row < seq}
    rows |= set(random.Random(seed).sample(sorted(set(range(seq)) - rows), SAMPLE - len(rows)))
    return sorted(rows)


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


# ---- a cell ----


def first_line(error):
    return str(error).strip().splitlines()[0]


class Contest:
    """A cell's contenders, each checked as it enters, and those that refused: {name: reason}. With a library, its roof of mma.sync takes
    part."""

    def __init__(self, torch, library, cell, operations, held):
        self._torch, self._cell, self._operations = torch, cell, operations
        self._contenders, self._refused = [], {}
        if library:
            launch, of_roof = held.enter_context(library.roof(cell.dtype, operations))
            self._contenders.append(Contender(ROOF, of_roof, launch))

    def _enter(self, name, operations, launch, worst_ratio):
        self._contenders.append(Contender(name, operations, launch, "ok" if worst_ratio <= 1 else "WRONG", worst_ratio))

    def enter_peer(self, name, prepare, worst_ratio):
        """Takes one of PEERS in. prepare(chosen) returns its launch, in whose results worst_ratio(*results) finds the largest error;
        within chosen(), PyTorch uses this peer's kernel."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        try:
            launch = prepare(lambda: sdpa_kernel(getattr(SDPBackend, PEERS[name])))
            self._enter(name, self._operations, launch, worst_ratio(*launch()))
        except RuntimeError as error:
            self._refused[name] = first_line(error)

    def enter_variant(self, name, program, held, results, worst_ratio):
        """Takes one of ours in, which writes to `results`."""
        try:
            launch, operations = held.enter_context(program)
        except Refused as error:
            self._refused[name] = first_line(error)
            return
        for result in results:
            result.fill_(math.nan)
        launch()
        self._enter(name, operations, launch, worst_ratio(*results))

    def measured(self, options, compared=(ROOF, *PEERS)):
        """The cell as JSON, once all have had their turns. `compared`: those whose speed everyone's is set against."""
        measure(self._contenders, Gpu(self._torch), options.rounds, options.repetitions, options.pause_ms, options.sustained_ms)
        others = [contender for contender in self._contenders if contender.name in compared]
        cell = self._cell
        return {
            "problem": {**asdict(cell), "batch": cell.batch, "heads": cell.heads},
            "contenders": [entry(contender, others) for contender in self._contenders],
            "refused": self._refused,
        }


def by_problem(cells):
    """{(seq, dim, causal, dtype): contenders by name} of cells as in the JSON."""
    found = {}
    for measured in cells.values():
        problem = measured["problem"]
        named = {contender["name"]: contender for contender in measured["contenders"]}
        found[problem["seq"], problem["dim"], problem["causal"], problem["dtype"]] = named
    return found


def bf16_over_fp16(measured_at, variant):
    """[bf16's speed over fp16's] of a variant, where both were measured."""
    pairs = [(named.get(variant), measured_at.get((*where, "fp16"), {}).get(variant)) for (*where, dtype), named in measured_at.items() if dtype == "bf16"]
    return [bf16["tflops"]["median"] / fp16["tflops"]["median"] for bf16, fp16 in pairs if bf16 and fp16]


def claims_of(figures):
    """[{what, value, target}] of (what, function of the values, values, target); what nothing was measured of is left out."""
    return [{"what": what, "value": of(values), "target": target} for what, of, values, target in figures if values]


# ---- the program ----


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
    print(f"{Path(sys.argv[0]).stem}: {reason}", file=sys.stderr)
    sys.exit(3)


def machine(torch, name, built, options):
    """Of the program of that name: where it ran, and with which options."""
    describe = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    chosen = [word for flag in ("step", "variant", "cell", "only") for value in as_list(getattr(options, flag, None)) for word in (f"--{flag}", value)]
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
        "command": [f"benchmarks/{name}.py", *chosen],  # without this machine's paths
    }


def as_list(value):
    return [value] if isinstance(value, str) else value or []


def parse_common(parser, arguments, all_cells, **defaults):
    """(options, cells chosen) of a parser to which what these programs share is added; `defaults`: of these options, where they are others."""
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "gpu", help="the gpu preset's build folder")
    parser.add_argument("--cell", action="append", help="only cells whose name holds this, as 'd 128, causal'; may be repeated")
    parser.add_argument("--rounds", type=int, default=7, help="in each, everyone has one turn (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="of a turn (default: %(default)s)")
    parser.add_argument("--pause-ms", type=int, default=5, help="before each turn (default: %(default)s)")
    parser.add_argument("--sustained-ms", type=int, default=200, help="without a pause; the second half counts (default: %(default)s)")
    parser.add_argument("--commit", help="of the sources, where the repository's history is not at hand")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.set_defaults(**defaults)
    options = parser.parse_args(arguments)
    if min(options.rounds, options.repetitions, options.sustained_ms) < 1 or options.pause_ms < 0:
        parser.error("--rounds, --repetitions and --sustained-ms are at least 1, --pause-ms at least 0")
    cells = [cell for cell in all_cells if not options.cell or any(part in cell.name for part in options.cell)]
    if not cells:
        parser.error("--cell: no cell is called so; there are:\n" + "\n".join(cell.name for cell in all_cells))
    return options, cells


def load(parser, options, step):
    """The step's library."""
    try:
        return Library(options.build / "lib" / f"libattention_{step}.so")
    except OSError as error:
        parser.error(f"{error}; make gpu builds it")


def parse(benchmark, arguments):
    parser = argparse.ArgumentParser(description=benchmark.about)
    parser.add_argument("--step", default=benchmark.step, help="which step (default: %(default)s)")
    parser.add_argument("--variant", action="append", help="of the step; may be repeated; the claims are the first one's (default: the program's choice)")
    options, cells = parse_common(parser, arguments, benchmark.cells)
    library = load(parser, options, options.step)
    known = [variant["name"] for variant in library.describe()["variants"]]
    for name in options.variant or []:
        if name not in known:
            parser.error(f"--variant: {options.step} has no variant '{name}' (it has: {', '.join(known)})")
    return options, library, cells


def run(benchmark, arguments=None):
    """The program; returns its exit status."""
    options, library, cells = parse(benchmark, arguments)
    torch = import_torch()
    built = library.describe()
    variants = options.variant or benchmark.default_variants(built)
    about = machine(torch, benchmark.name, built, options)
    print(f"{options.step}: {', '.join(variants)}, on {about['name']}; PyTorch {about['torch']}, cuDNN {about['cudnn']}")
    results = {}
    try:
        for seed, cell in enumerate(cells, 1):
            results[cell.name] = benchmark.measure_cell(torch, library, variants, cell, options, seed)
            print_cell(cell.name, results[cell.name])
    except (RuntimeError, Refused) as error:
        refuse(error)
    return finish(options, results, benchmark.claims(results, variants), {"machine": about, "step": options.step, "variants": variants})


def run_both_passes(name, about, cells, measure_cell, claims, head, arguments=None, **defaults):
    """The program of that name, of steps 05 and 06; returns its exit status. measure_cell(torch, libraries, cell, options, seed), where
    libraries[backward] is a step; claims(cells as in the JSON); `head`: what the report says besides; `defaults`: as parse_common."""
    parser = argparse.ArgumentParser(description=about)
    options, cells = parse_common(parser, arguments, cells, **defaults)
    libraries = {backward: load(parser, options, step) for backward, step in ((False, "05_flash_v2"), (True, "06_backward"))}
    torch = import_torch()
    ran_on = machine(torch, name, libraries[True].describe(), options)
    results = {}
    try:
        for seed, cell in enumerate(cells, 1):
            results[cell.name] = measured = measure_cell(torch, libraries, cell, options, seed)
            print(f"\n{cell.name}")
            for contender in measured["contenders"]:
                print(f"  {contender['name']:26} {contender['verdict']:6} {contender['burst_ms']['median']:8.4f} ms {contender['tflops']['median']:7.1f} TFLOP/s")
            for refused, reason in measured["refused"].items():
                print(f"  {refused:26} refused: {reason}")
            sys.stdout.flush()
    except (RuntimeError, Refused) as error:
        refuse(error)
    return finish(options, results, claims(results), {"machine": ran_on, **head})


def finish(options, results, claims, head):
    """Prints the claims, and writes the report: `head`, the settings, the cells, the claims. The exit status."""
    print()
    for claim in claims:
        print(f"{claim['what']}: {claim['value']:.3f}" + (f" (target {claim['target']})" if claim["target"] else ""))
    if options.json:
        settings = {name: getattr(options, name) for name in ("rounds", "repetitions", "pause_ms", "sustained_ms")}
        options.json.write_text(to_text({**head, **settings, "cells": results, "claims": claims}))
    wrong = [f"{c['name']} at {name}" for name, cell in results.items() for c in cell["contenders"] if c["verdict"] == "WRONG"]
    for text in wrong:
        print(f"WRONG: {text}", file=sys.stderr)
    return 1 if wrong else 0
