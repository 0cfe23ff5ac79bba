"""Tables made from committed results. A page asks for one with two comments, and what stands between them is generated:

    <!-- results: NAME [ARGUMENT …] -->
    <!-- /results -->

`@table("NAME")` registers the function that makes it. It gets the repository's root and the arguments, reads what it needs, and returns
Markdown. It raises TableError for arguments or files that it cannot serve. `@measured("NAME")` is the same for what ran on a device: the
function gets Results in place of the root, and a line below the table names the device. The last argument on=DEVICE chooses it.
"""

import inspect
import json
import re
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.measure import ladder
from tools.measure.committed import (
    SHORT_SHAPES,
    Results,
    by_variant,
    described,
    median,
    read_json,
)
from tools.measure.committed import ResultError as TableError
from tools.measure.profiling import ncu
from tools.measure.profiling.digest import by_kernel, meanings
from tools.measure.profiling.launch import from_ncu
from tools.measure.profiling.machine import floor_seconds, quantity
from tools.measure.shapes import SPEED_OVER

TABLES = {}


def table(name):
    """Registers a function as the maker of the tables of that name."""

    def register(function):
        if name in TABLES:
            raise ValueError(f"two functions are registered for the table {name}")
        TABLES[name] = function
        return function

    return register


def measured(name):
    """The same for a table of what ran on a device: it gets Results in place of the root."""

    def register(function):
        function.measured = True
        return table(name)(function)

    return register


def ran_on(devices):
    """The line below a table."""
    return "*Simulated.*" if devices == ["sim"] else f"*Measured on {' and '.join(f'one {device.upper()}' for device in devices)}.*"


def make(root, name, arguments, tables=None):
    """The Markdown of one table."""
    tables = TABLES if tables is None else tables
    if name not in tables:
        known = ", ".join(sorted(tables)) or "none"
        raise TableError(f"no function is registered for the table “{name}” (there are: {known})")
    function, source, words = tables[name], root, arguments
    if getattr(function, "measured", False):
        asked = arguments[-1].removeprefix("on=") if arguments and arguments[-1].startswith("on=") else None
        source, words = Results(root, asked), arguments[:-1] if asked else arguments
    try:
        inspect.signature(function).bind(source, *words)
    except TypeError as error:
        raise TableError(f"the table {name} does not take the arguments {arguments}") from error
    text = function(source, *words).strip("\n")
    return f"{text}\n\n{ran_on(source.used)}" if source is not root and text.startswith("|") else text


def markdown(header, rows, align=""):
    """A Markdown table. `align`: one letter a column, l or r; numbers read best aligned right."""
    align = align.ljust(len(header), "l")
    rule = ["---:" if letter == "r" else "---" for letter in align]
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in [header, rule, *rows])


HBM = {"h200": "HBM3e", "h100": "HBM3"}


@measured("memory")
def memory_table(run):
    """The memory hierarchy: how much, how far, how wide."""
    gpu = run.machine()
    clock = gpu["sm_clock_mhz"] * 1e6
    cycles, rates = gpu["latency_cycles"], gpu["read_bytes_per_second"]
    registers = 4 * gpu["registers_per_multiprocessor"] // 1024
    shared = gpu["shared_bytes_per_multiprocessor"] // 1024

    def row(level, size, key, rate):
        return [level, size, f"{cycles[key]:.0f}", f"{cycles[key] / clock * 1e9:.0f}", rate]

    return markdown(
        ["level", "size", "latency, cycles", "latency, ns", "bandwidth"],
        [
            ["registers", f"{registers} KiB per multiprocessor", "-", "-", "-"],
            row(
                "shared memory",
                f"up to {shared} KiB per multiprocessor",
                "shared",
                quantity(rates["shared"], "B/s") + " read",
            ),
            row(
                "L1 cache",
                "256 KiB per multiprocessor, shared memory included",
                "l1",
                quantity(rates["l1"], "B/s") + " read",
            ),
            row("L2 cache", f"{gpu['l2_bytes'] // 2**20} MiB", "l2", quantity(rates["l2"], "B/s") + " read"),
            row(
                f"device memory ({HBM[run.device]})",
                f"{gpu['memory_bytes'] / 1e9:.0f} GB",
                "hbm",
                quantity(gpu["ceilings"]["copy_bytes_per_second"]["value"], "B/s") + " copied",
            ),
        ],
        "llrrr",
    )


def rate_unit(name):
    """Of a ceiling."""
    return "B/s" if name.endswith("bytes_per_second") else "FLOP/s"


@measured("ceilings")
def ceilings_table(run):
    """What a GPU reached, each with the way it was measured."""
    ceilings = run.machine()["ceilings"]
    rows = []
    for name, ceiling in ceilings.items():
        rows.append([ceiling["what"], quantity(ceiling["value"], rate_unit(name))])
    return markdown(["ceiling", "measured"], rows, "lr")


# ---- times, from what `make gpu-check` wrote ----


@measured("bursts")
def bursts_table(run):
    """What benchmarks/ceilings reached in a burst and without a pause."""
    if not run.has("ceilings.json"):
        return "No run of these kernels is committed yet; `make gpu-check` makes one."
    rows = []
    for name, ceiling in run.read("ceilings.json")["ceilings"].items():
        unit = rate_unit(name)
        clock = f"{ceiling['sm_clock_mhz']} MHz" if "sm_clock_mhz" in ceiling else "-"
        rows.append([ceiling["what"], quantity(ceiling["value"], unit), quantity(ceiling["sustained"], unit), clock])
    return markdown(["what", "burst", "sustained", "SM clock meanwhile"], rows, "lrrr")


@measured("times")
def times_table(run, step):
    """Every variant of a step, at every shape that was measured: the median, and in brackets the TFLOP/s."""
    reports = {shape: report for (_, shape), report in run.benchmarks(step).items()}
    if not reports:
        return ""
    results = {shape: by_variant(report) for shape, report in reports.items()}
    variants = dict.fromkeys(variant for named in results.values() for variant in named)

    def cell(result):
        return f"{median(result)} ({result['tflops']:.3g})" if result else "-"

    rows = [[f"`{variant}`", *(cell(named.get(variant)) for named in results.values())] for variant in variants]
    header = ["median (TFLOP/s)", *(f"{shape}:<br>{described(report)}" for shape, report in reports.items())]
    return markdown(header, rows, "l" + "r" * len(reports))


def peers_table(run, program, kind, base, share, work, unit):
    """A benchmark's contenders at each shape: the rate in bursts with the share of the first contender's, or sustained."""
    if kind not in ("burst", "sustained"):
        raise TableError(f"{program}: {kind} is neither burst nor sustained")
    if not run.has(f"{program}.json"):
        return ""
    shapes = run.read(f"{program}.json")["shapes"]
    columns = {name: {c["name"]: c for c in measured["contenders"]} for name, measured in shapes.items()}
    wrong = [  # the base computes nothing that could be checked
        (name, c) for name, column in columns.items() for c, of in column.items() if of["verdict"] != "ok" and c != base
    ]
    if wrong:
        raise TableError(f"{program}.json: the result of {wrong[0][1]} is wrong at {wrong[0][0]}")

    def cell(contender):
        if contender is None:
            return "-"
        ms = contender["burst_ms"]["median"] if kind == "burst" else contender["sustained_ms"]
        rate = f"{contender[work] / ms * 1e-9:.3g}"
        return f"{rate} ({contender[share]['median']:.3f})" if kind == "burst" else rate

    names = dict.fromkeys(name for column in columns.values() for name in column)
    rows = [[name, *(cell(column.get(name)) for column in columns.values())] for name in names]
    of_base = f" (share of the {base.split(' ', 1)[0]})"
    return markdown([unit + (of_base if kind == "burst" else ", sustained"), *columns], rows, "l" + "r" * len(columns))


@measured("gemm_peers")
def gemm_peers_table(run, kind):
    """Step 02, cuBLAS and the roof of mma.sync in one run."""
    return peers_table(run, "gemm_peers", kind, "roof of mma.sync", "of_roof", "operations", "TFLOP/s")


@measured("softmax_peers")
def softmax_peers_table(run, kind):
    """Step 03 and a copy of the same bytes in one run: x read once and y written once over the time."""
    return peers_table(run, "softmax_peers", kind, "copy", "of_copy", "bytes", "TB/s")


def softmax_rate(result):
    """x read once and y written once over the median time, in B/s."""
    problem = result["problem"]
    moved = 2 * problem["rows"] * problem["cols"] * (4 if problem["dtype"] == "fp32" else 2)
    return moved / (result["times_ms"]["median"] / 1000)


@measured("softmax")
def softmax_table(run):
    """Step 03 at every shape that was measured: x read once and y written once over the median time, as a rate and, in brackets, as a
    share of what a copy reaches."""
    reports = list(run.benchmarks("03_online_softmax").values())
    if not reports:
        return ""
    copied = run.machine()["ceilings"]["copy_bytes_per_second"]["value"]

    def cell(result):
        if result is None:
            return "-"
        rate = softmax_rate(result)
        return f"{quantity(rate, 'B/s')} ({rate / copied:.3f})"

    columns = {described(report): by_variant(report) for report in reports}
    variants = dict.fromkeys(variant for named in columns.values() for variant in named)
    rows = [[f"`{variant}`", *(cell(named.get(variant)) for named in columns.values())] for variant in variants]
    return markdown(["x and y over time (share of a copy)", *columns], rows, "l" + "r" * len(columns))


ROOF = "roof of mma.sync"
OTHERS = {"FlashAttention-2": "FA2", "cuDNN": "cuDNN", "memory-efficient": "memory-efficient"}  # as the columns call them


def torch_peers(run, program, may_be_wrong=()):
    """(cells, variants) of PROGRAM.json: {name: {contender: entry}}; nothing before it is committed. TableError where a result was
    wrong, but of those that `may_be_wrong`."""
    if not run.has(f"{program}.json"):
        return {}, []
    report = run.read(f"{program}.json")
    cells = {name: {c["name"]: c for c in measured["contenders"]} for name, measured in report["cells"].items()}
    for name, contenders in cells.items():
        for contender, entry in contenders.items():
            if entry["verdict"] != "ok" and contender != ROOF and contender not in may_be_wrong:  # the roof computes nothing that could be checked
                raise TableError(f"{program}.json: the result of {contender} is wrong at {name}")
    return cells, report["variants"]


def over(entry, other):
    """The speed over another one's, with its spread."""
    of = (entry or {"of": {}})["of"].get(other)
    return f"{of['median']:.2f} ({of['min']:.2f}–{of['max']:.2f})" if of else "-"


def torch_peers_table(run, program, kind):
    """A step beside PyTorch's kernels, in one run: TFLOP/s in bursts with the speed over the others', or sustained with the clock. The
    figures of others and of the roof are of the first variant."""
    if kind not in ("burst", "sustained"):
        raise TableError(f"{program}: {kind} is neither burst nor sustained")
    cells, variants = torch_peers(run, program)
    if not cells:
        return ""

    def rate(entry):
        if entry is None:
            return "-"
        if kind == "burst":
            return f"{entry['tflops']['median']:.0f}"
        return f"{entry['sustained_tflops']:.0f}" + (f" ({entry['sm_clock_mhz']})" if entry["sm_clock_mhz"] else "")

    contenders = [*variants, *OTHERS] + ([ROOF] if kind == "sustained" else [])
    compared = [*OTHERS][:2] + [ROOF] if kind == "burst" else []
    rows = [
        [name, *(rate(cell.get(contender)) for contender in contenders), *(over(cell.get(variants[0]), other) for other in compared)]
        for name, cell in cells.items()
    ]
    title = "TFLOP/s, bursts" if kind == "burst" else "TFLOP/s, sustained (SM clock, MHz)"
    called = {variant: f"`{variant}`" for variant in variants} | OTHERS | {ROOF: "the roof"}
    names = [*(called[contender] for contender in contenders), *(f"of {called[other]}" for other in compared)]
    return markdown([title, *names], rows, "l" + "r" * len(names))


@measured("attention_peers")
def attention_peers_table(run, kind):
    """Step 05."""
    return torch_peers_table(run, "attention_peers", kind)


@measured("backward_peers")
def backward_peers_table(run, kind):
    """Step 06."""
    return torch_peers_table(run, "backward_peers", kind)


def claims_table(run, program, may_be_wrong=()):
    """What that run says of the first variant, beside what was aimed at."""
    cells, _ = torch_peers(run, program, may_be_wrong)
    if not cells:
        return ""
    claims = run.read(f"{program}.json")["claims"]
    rows = [[claim["what"], f"{claim['target']:.2f}" if claim["target"] else "-", f"{claim['value']:.3f}"] for claim in claims]
    return markdown(["what", "at least", "measured"], rows, "lrr")


@measured("attention_claims")
def attention_claims_table(run):
    """Step 05."""
    return claims_table(run, "attention_peers")


@measured("backward_claims")
def backward_claims_table(run):
    """Step 06."""
    return claims_table(run, "backward_peers")


@measured("packed")
def packed_table(run, which):
    """Packed sequences beside padding and FlashAttention-2's kernels for packed ones, of the forward or of the backward pass: times in
    bursts, and speeds over the others'."""
    if which not in ("forward", "backward"):
        raise TableError(f"packed: {which} is neither forward nor backward")
    if not run.has("packed_peers.json"):
        return ""
    report = run.read("packed_peers.json")
    rows = []
    for name, measured in report["cells"].items():
        if measured["problem"]["backward"] != (which == "backward"):
            continue
        contenders = {c["name"]: c for c in measured["contenders"]}
        if wrong := [contender for contender, entry in contenders.items() if entry["verdict"] == "WRONG"]:
            raise TableError(f"packed_peers.json: the result of {wrong[0]} is wrong at {name}")
        ours, others = contenders["packed"], [contenders.get(other) for other in ("padded", "FlashAttention-2, packed")]
        texts = f"{len(report['lengths'][measured['problem']['lengths']])} texts of {'any' if measured['problem']['lengths'] == 'mixed' else 'equal'} length"
        masked = ", causal" if measured["problem"]["causal"] else ""
        times = [f"{entry['burst_ms']['median']:.3f}" if entry else "-" for entry in (ours, *others)]
        speeds = [f"{ours['of'][entry['name']]['median']:.2f}" if entry else "-" for entry in others]
        rows.append([f"{texts}, d {measured['problem']['dim']}{masked}", *times, *speeds])
    return markdown(["ms", "packed", "padded", "FA2, packed", "of padded", "of FA2"], rows, "lrrrrr")


DROPOUT_MAY_BE_WRONG = ["memory-efficient"]  # it is, in one cell: page 06 says where


@measured("dropout")
def dropout_table(run, which):
    """Dropout beside PyTorch's kernels with dropout, of the forward or of the backward pass: TFLOP/s in bursts, the speed over
    FlashAttention-2's, and what dropout costs."""
    if which not in ("forward", "backward"):
        raise TableError(f"dropout: {which} is neither forward nor backward")
    cells, variants = torch_peers(run, "dropout_peers", may_be_wrong=DROPOUT_MAY_BE_WRONG)

    def rate(entry):
        if entry is None:
            return "-"
        return f"{entry['tflops']['median']:.0f}" if entry["verdict"] == "ok" else "wrong"

    rows = []
    for name, cell in cells.items():
        if not name.startswith(which):
            continue
        ours = cell.get(variants[0])
        rates = [rate(entry) for entry in (ours, *(cell.get(other) for other in OTHERS))]
        without = ours and ours["of"].get(variants[1])
        price = f"{1 / without['median']:.2f}" if without else "-"
        rows.append([name.removeprefix(f"{which}, "), *rates, over(ours, "FlashAttention-2"), over(ours, "cuDNN"), price])
    if not rows:
        return ""
    names = [f"`{variants[0]}`", *OTHERS.values(), "of FA2", "of cuDNN", "time, of that without"]
    return markdown(["TFLOP/s with dropout", *names], rows, "l" + "r" * len(names))


@measured("sparse_peers")
def sparse_peers_table(run, which, dim):
    """Block-sparse attention beside dense attention and FlexAttention, of the forward or of the backward pass, at a head dim: times in bursts,
    time over dense, and speed over FlexAttention's. p is the share of tiles that are visited."""
    if which not in ("forward", "backward") or dim not in ("64", "128"):
        raise TableError(f"sparse_peers: {which} {dim} is none of forward and backward with 64 or 128")
    cells, _ = torch_peers(run, "sparse_peers")
    if not cells:
        return ""
    rows = []
    any_kept = any(name.startswith("ours with its plan kept") for cell in cells.values() for name in cell)
    for name, measured in run.read("sparse_peers.json")["cells"].items():
        problem = measured["problem"]
        if (problem["backward"], problem["dim"]) != (which == "backward", int(dim)):
            continue
        for kind, mask in measured["masks"].items():
            ours, kept, flex = (cells[name].get(f"{contender}, {kind}") for contender in ("ours", "ours with its plan kept", "FlexAttention"))
            if ours is None:
                continue
            dense = ours["time_over"].get("dense, ours")
            rows.append(
                [
                    f"{kind}{', causal' if problem['causal'] else ''}",
                    f"{mask['p']:.3f}",
                    f"{ours['burst_ms']['median']:.3f}",
                    f"{mask['plan_ms']:.3f}" if mask["plan_ms"] else "-",
                    *([f"{kept['burst_ms']['median']:.3f}" if kept else "-"] if any_kept else []),
                    f"{dense['median']:.3f} ({dense['min']:.3f}–{dense['max']:.3f})" if dense else "-",
                    f"{dense['median'] - mask['p']:+.3f}" if dense else "-",
                    f"{flex['burst_ms']['median']:.3f}" if flex else "-",
                    over(ours, f"FlexAttention, {kind}"),
                ]
            )
    names = ["p", "ms", "plan's kernels, ms", *(["with the plan kept, ms"] if any_kept else []), "time over dense", "less p", "FlexAttention, ms", "of FlexAttention"]
    return markdown([f"{which}, d {dim}", *names], rows, "l" + "r" * len(names))


@measured("sparse_claims")
def sparse_claims_table(run):
    """Step 07: what that run says, beside what was aimed at, and whether it holds."""
    cells, _ = torch_peers(run, "sparse_peers")
    if not cells:
        return ""
    verdict = {True: "holds", False: "missed", None: "-"}
    rows = [
        [
            claim["what"],
            f"{claim['bound']} {claim['target']:g}" if claim["target"] is not None else "-",
            f"{claim['least']:.3f}–{claim['most']:.3f}",
            len(claim["cells"]),
            verdict[claim["holds"]],
        ]
        for claim in run.read("sparse_peers.json")["claims"]
    ]
    return markdown(["what", "target", "measured", "cells", "verdict"], rows, "lrrrl")


@measured("training")
def training_table(run):
    """How far the losses of a training run are from each other, at most of its steps; empty until training.json is there."""
    if not run.has("training.json"):
        return ""
    losses = {(one["attention"], one["dtype"], one["dropout_of_256"]): one["losses"] for one in run.read("training.json")["runs"]}

    def apart(one, other):
        return f"{max(abs(a - b) / b for a, b in zip(losses[one], losses[other], strict=True)):.1e}"

    rows = []
    for attention, dtype, dropout in losses:
        if attention != "flashsteps":
            continue
        ours, torch, double = (attention, dtype, dropout), ("torch", dtype, dropout), ("double", "fp64", dropout)
        name = f"{dtype}, dropout {dropout}/256" if dropout else f"{dtype}, no dropout"
        rows.append([name, apart(ours, torch), apart(ours, double), apart(torch, double), f"{losses[ours][0] / losses[ours][-1]:.1f}"])
    return markdown(["relative difference of the loss, at most", "ours, from PyTorch's", "ours, from double", "PyTorch's, from double", "first loss over the last"], rows, "lrrrr")


@measured("dropout_claims")
def dropout_claims_table(run):
    """Steps 05 and 06."""
    return claims_table(run, "dropout_peers", DROPOUT_MAY_BE_WRONG)


# ---- the simulator ----


@measured("parity")
def parity_table(run):
    """How many numbers of the simulator were compared with Nsight Compute's (tools/measure/parity.py)."""
    header = ["kernels of", "launches", "exact numbers compared", "different", "estimates", "different"]
    counts = {step: count for one in run.each() for step, count in one.read("parity.json").items()}
    columns = ["launches", "compared", "different", "estimates", "estimates_different"]
    return markdown(header, [[f"`{step}`", *(count[c] for c in columns)] for step, count in counts.items()], "lrrrrr")


@table("io_theorem")
def io_theorem_table(root):
    """Bytes that attention asks of memory, by formula and counted (tools/learn/io_counts.py)."""
    points = read_json(root, "results/sim/io_theorem.json")["points"]
    rows = [
        [
            p["algorithm"] + (f", {p['kib']} KB" if p["kib"] else ""),
            p["n"],
            p["d"],
            f"{p['predicted'] / 1e6:.3f}",
            f"{p['counted'] / 1e6:.3f}",
            f"{(p['counted'] / p['predicted'] - 1) * 100:.2f} %",
        ]
        for p in sorted(points, key=lambda p: (p["d"] != 64, p["d"], p["n"]))
    ]
    return markdown(["requested, one head, fp16", "N", "d", "expected, MB", "counted, MB", "more"], rows, "lrrrrr")


@table("simulator_cost")
def simulator_cost_table(root):
    """What the simulator's checks cost (build/sim/tests/simt_speed)."""
    rows = read_json(root, "results/sim/speed.json")["rows"]
    columns = ["bounds", "races", "counters", "all"]
    return markdown(["ns", *columns], [[row["what"], *(f"{row[c]:.0f}" for c in columns)] for row in rows], "lrrrr")


# ---- counters, from Nsight Compute's raw page as `make gpu-check` keeps it ----


def profiles(run, step, shape):
    """[{metric: text}, …] of the launches of a step at one shape; nothing before the first profile is committed."""
    named = run.profile(step)
    if not named:
        return []
    if shape not in named:
        raise TableError(f"ncu_{step}.csv has no shape {shape} (it has: {', '.join(named)})")
    return named[shape]


def metric(launch, name):
    """A metric as a number; TableError if the profile does not have it."""
    try:
        return float(launch[name].replace(",", ""))
    except (KeyError, ValueError) as error:
        raise TableError(f"the profile has no number {name} for {launch.get('Kernel Name')}") from error


def sectors_per_request(launch, operation):
    """Sectors that a request to device memory touches, on average; "-" where there are no requests."""
    requests = metric(launch, f"l1tex__t_requests_pipe_lsu_mem_global_op_{operation}.sum")
    sectors = metric(launch, f"l1tex__t_sectors_pipe_lsu_mem_global_op_{operation}.sum")
    return f"{sectors / requests:.1f}" if requests else "-"


def floors(run, step, shape):
    """{kernel: its floor time in seconds} as predicted for the benchmark of that shape; nothing where there is none."""
    report = run.benchmarks(step).get((step, shape))
    if not report:
        return {}
    ceilings = run.machine()["ceilings"]
    least = {}
    for result in report["results"]:
        for cost in result["kernels"]:  # where variants share a kernel, the first: whose launch the tables show
            least.setdefault(cost["kernel"], floor_seconds(cost, result["problem"]["dtype"], ceilings))
    return least


@measured("kernels")
def kernels_table(run, step, shape):
    """Every kernel of a step at one shape, as Nsight Compute saw its first launch (in base units: ns, bytes)."""
    first = {}
    for launch in profiles(run, step, shape):
        first.setdefault(ncu.base_name(launch["Kernel Name"]), launch)
    least = floors(run, step, shape)
    rows = [
        [
            f"`{name}`",
            quantity(least[name], "s") if name in least else "-",
            quantity(metric(launch, "gpu__time_duration.sum") * 1e-9, "s"),
            sectors_per_request(launch, "ld"),
            sectors_per_request(launch, "st"),
            f"{metric(launch, 'l1tex__t_sector_hit_rate.pct'):.0f} %",
            f"{metric(launch, 'lts__t_sector_hit_rate.pct'):.0f} %",
            quantity(metric(launch, "dram__bytes_read.sum"), "B"),
            quantity(metric(launch, "dram__bytes_write.sum"), "B"),
        ]
        for name, launch in first.items()
    ]
    header = [
        "kernel",
        "floor",
        "time",
        "sectors / load",
        "sectors / store",
        "L1 hits",
        "L2 hits",
        "DRAM read",
        "DRAM written",
    ]
    return markdown(header, rows, "lrrrrrrrr") if rows else ""


# ---- what bounds a kernel (tools/measure/profiling) ----


@measured("profile")
def profile_table(run, step, shape):
    """Every kernel of a step at one shape: what it reached, and what bounds it, by the committed profile."""
    launches = from_ncu(profiles(run, step, shape), run.benchmarks(step).get((step, shape)))
    rows = by_kernel(launches, run.machine())
    return markdown(["kernel", "time", "floor / time", "what bounds it"], rows, "lrrl") if rows else ""


@table("profile_rows")
def profile_rows_table(root):
    """The rows of the profile's table, with Nsight Compute's names."""
    return markdown(["row", "what it is", "metrics"], meanings(), "lll")


# ---- the ladder ----

LADDER_SHAPES = ("tour", "4k", "16k × 4k", "d 64 4096", "d 128 4096", "16k", "16k-d128", "16k backward", "16k-d128 backward")


@measured("ladder")
def ladder_table(run, step=None):
    """Every variant of every step. Steps that were measured at the same problems share a table; both passes of a step have one each. Of one
    step alone, if it is named."""
    by_step = {}
    for (name, shape), report in run.benchmarks(step).items():
        if shape in LADDER_SHAPES:
            of_pass = report["results"][0]["problem"]["family"]
            by_step.setdefault((name, of_pass), []).append((LADDER_SHAPES.index(shape), described(report), by_variant(report)))
    shared = {}  # {problems: rows}
    for (name, _), measured in sorted(by_step.items()):
        columns = sorted(measured, key=lambda column: column[:2])
        rows = shared.setdefault(tuple(problem for _, problem, _ in columns), [])
        for variant in dict.fromkeys(variant for *_, results in columns for variant in results):
            times = [median(results[variant]) if variant in results else "-" for *_, results in columns]
            rows.append([*([] if step else [f"[{name[:2]}]({name}.md)"]), f"`{variant}`", *times])
    header = ["variant"] if step else ["step", "variant"]
    return "\n\n".join(markdown([*header, *problems], rows, "l" * len(header) + "r" * len(problems)) for problems, rows in shared.items())


def speeds_over(run, step):
    """(the variant that was compared with others in one run, {another one: [the variant's speed over its, for each problem]})."""
    asked = SPEED_OVER.get(step)
    if not asked:
        return None, {}
    program = asked["run"]
    if "share" in asked:
        if not run.has(f"{program}.json"):
            return None, {}
        shapes = run.read(f"{program}.json")["shapes"]
        contenders = [one for shape, measured in shapes.items() if asked["shapes"] in shape for one in measured["contenders"]]
        return "tuned", {asked["of"]: [one[asked["share"]]["median"] for one in contenders if one["name"] == "tuned"]}
    cells, variants = torch_peers(run, program)
    if not cells:
        return None, {}
    ours = [entry["of"] for cell in cells.values() for name, entry in cell.items() if name == variants[0] or name.startswith("ours, ")]
    named = lambda of, other: [ratio["median"] for name, ratio in of.items() if name == other or name.startswith(f"{other}, ")]
    return variants[0], {other: [speed for of in ours for speed in named(of, other)] for other in asked["others"]}


def title_of(root, step):
    """The heading of a step's page; its folder's name where it has none."""
    page = root / "docs" / f"{step}.md"
    return re.match(r"# (.*)", page.read_text())[1] if page.is_file() else step


@measured("ladder_short")
def ladder_short_table(run):
    """The README's: a row for each step, with its best variant at one large problem, and the speed of that over other people's kernels: the
    geometric mean over all problems of the run beside them, with the least and the most."""
    rows = []
    for step in sorted(path.name for path in (run.root / "steps").glob("[0-9][0-9]_*") if path.is_dir()):
        measured = run.benchmarks()
        report = next((measured[step, shape] for shape in SHORT_SHAPES if (step, shape) in measured), None)
        variant, others = speeds_over(run, step)
        problem = time = "-"
        if report:
            results = by_variant(report)
            variant = variant or min(results, key=lambda name: results[name]["times_ms"]["median"])
            problem, time = described(report), median(results[variant])
        beside = [f"{name}: {statistics.geometric_mean(over):.2f} ({min(over):.2f}–{max(over):.2f})" for name, over in others.items() if over]
        rows.append([f"[{title_of(run.root, step)}](docs/{step}.md)", f"`{variant}`" if report else "-", problem, time, "; ".join(beside) or "-"])
    return markdown(["step", "variant", "problem", "time", "speed over that of others"], rows, "lllrl")


@measured("odd_elements")
def odd_elements_table(run, direction):
    """What an ∞, a NaN or the like in one element costs (benchmarks/cliffs.py): the time over that of clean input, at most, by input and place."""
    most = {}  # {place: {input: ratio}}
    for row in run.read("cliffs.json")["groups"]["values"]:
        of, element, *place = row["name"].split(", ")
        if of == direction:
            ratios, name = most.setdefault(", ".join(place), {}), element.split()[0]
            ratios[name] = max(ratios.get(name, 0), row["ratio"])
    inputs = [name for name in ("Q", "K", "V", "dO") if any(name in ratios for ratios in most.values())]
    rows = [[place, *(f"{ratios[name]:.2f}" if name in ratios else "-" for name in inputs)] for place, ratios in most.items()]
    return markdown(["odd element in", *inputs], rows, "l" + "r" * len(inputs))


@measured("shared_heads")
def shared_heads_table(run):
    """The backward pass where heads share a key/value head (benchmarks/cliffs.py): the speed over FlashAttention-2, and in brackets over a
    group that is not split over blocks."""
    cells = {}  # {heads and tokens: {dim and mask: {what it is compared with: speed}}}
    for row in run.read("cliffs.json")["groups"]["shared heads"]:
        heads, tokens, *problem = row["name"].removeprefix("backward, 1 × ").split(", ")
        cells.setdefault(f"{heads}, {tokens}", {}).setdefault(", ".join(problem), {})[row["of"]] = 1 / row["ratio"]
    problems = list(dict.fromkeys(problem for row in cells.values() for problem in row))
    of = lambda speeds: f"{speeds['FlashAttention-2']:.2f} ({speeds['heads that are not split over blocks']:.1f})"
    rows = [[name, *(of(row[problem]) for problem in problems)] for name, row in cells.items()]
    return markdown(["query heads / key/value heads", *problems], rows, "l" + "r" * len(problems))


@measured("measured_on")
def measured_on(run, program):
    """The machine of a benchmark beside PyTorch's kernels, and where its numbers are."""
    file = f"{program}.json"
    m = run.read(file)["machine"]
    cudnn = f"{m['cudnn'] // 10000}.{m['cudnn'] // 100 % 100}.{m['cudnn'] % 100}"
    torch = m["torch"].partition("+")[0]
    return f"One {m['name']}, {m['date'][:10]}: CUDA {m['nvcc']}, driver {m['driver_version']}, PyTorch {torch}, cuDNN {cudnn}. The numbers: `{run.path(file)}`."


# ---- what a program printed ----


@table("printed")
def printed(root, path, lines=None):
    """A committed text as a fenced block: all of it, or its first lines."""
    if not (root / path).is_file():
        raise TableError(f"{path} does not exist")
    text = (root / path).read_text().splitlines()
    if lines is not None and not (lines.isdecimal() and 0 < int(lines) <= len(text)):
        raise TableError(f"printed: {lines} is not a number of lines of {path}, which has {len(text)}")
    if any("```" in line for line in text):
        raise TableError(f"printed: {path} holds a fence")
    return "\n".join(["```text", *text[: int(lines) if lines else None], "```"])


# ---- the ladder of one step, rung by rung ----

NOT_MEASURED = "not measured"


def main_kernels(machine, shape, rung):
    """What results/machine_code says of the kernels that matter in a rung: those with mma; else those of its own file; else all."""
    names = dict.fromkeys(machine["shapes"].get(shape, {}).get(rung.variant, []))
    kernels = [machine["kernels"][name] for name in names]
    own = [kernel for kernel in kernels if kernel["file"] == rung.path.name]
    return [kernel for kernel in kernels if kernel["loop"]] or own or kernels


def registers_of(kernels):
    """A cell: "168", "40, 62" of two kernels, "255 + 96 B spilled"."""
    return ", ".join(f"{k['registers']}" + (f" + {k['stack']} B spilled" if k["stack"] else "") for k in kernels)


def instructions_per_mma(kernels):
    """Of the main loop, the mma included."""
    return ", ".join(f"{k['loop']['instructions'] / k['loop']['HMMA']:.2f}" for k in kernels if k["loop"]) or "-"


def predecessor_of(rung, rungs):
    """The rung that a file was made from; past files that are no variant."""
    before = rungs.get(rung.predecessor)
    while before and before.variant is None:
        before = rungs.get(before.predecessor)
    return before


@measured("rungs")
def rungs_table(run, step, *shapes):
    """Every rung of a step's ladder beside its predecessor: the lines that it adds (tools/measure/ladder.py), what nvcc made of its kernel
    (results/machine_code, by `make sass UPDATE=1`), and how fast that is. Files without a ladder's header are left out."""
    if not shapes:
        raise TableError("rungs: no shape was named")
    measured = {shape: report for (_, shape), report in run.benchmarks(step).items()}
    if not measured:
        return ""
    if unknown := [shape for shape in shapes if shape not in measured]:
        raise TableError(f"{step} was not measured at {unknown[0]} (it was at: {', '.join(measured)})")
    rungs = {rung.path.name: rung for rung in ladder.variant_rungs(run.root / "steps" / step)}
    file = run.root / "results" / "machine_code" / f"{step}.json"
    machine = json.loads(file.read_text()) if file.is_file() else {"shapes": {}, "kernels": {}}
    has_mma = any(kernel["loop"] for kernel in machine["kernels"].values())
    rows, columns = {rung: [] for rung in rungs.values() if rung.variant}, []
    for rung, row in rows.items():
        before, added = predecessor_of(rung, rungs), ladder.added_lines(rung)
        note = f" ({rung.note})" if rung.note else ""
        earlier = re.fullmatch(r"(\d+)_\w+/(\S+)", rung.predecessor or "")
        made_from = f"`{before.variant}`{note}" if before else f"`{ladder.FILE.fullmatch(earlier[2])[2]}` of step {earlier[1]}" if earlier else "-"
        row += [f"`{rung.variant}`", made_from, "-" if added is None else added]
    for shape in shapes:
        report, results = measured[shape], by_variant(measured[shape])
        skipped = {skip["variant"] for skip in report.get("skipped", [])}
        softmax = report["results"][0]["problem"]["family"] == "softmax"
        names = ["registers", *(["instructions per mma"] if has_mma else []), "GB/s" if softmax else "TFLOP/s", "× predecessor"]
        columns += [f"{shape}:<br>{name}" if len(shapes) > 1 else name for name in names]
        for rung, row in rows.items():
            result, kernels, before = results.get(rung.variant), main_kernels(machine, shape, rung), predecessor_of(rung, rungs)
            absent = "-" if rung.variant in skipped else NOT_MEASURED
            row.append(registers_of(kernels) or absent)
            if has_mma:
                row.append(instructions_per_mma(kernels) if kernels else absent)
            row.append((f"{softmax_rate(result) / 1e9:.0f}" if softmax else f"{result['tflops']:.3g}") if result else absent)
            other = results.get(before.variant) if before else None
            row.append(f"{other['times_ms']['median'] / result['times_ms']['median']:.2f}" if result and other else "-")
    header = ["rung", "predecessor", "added lines", *columns]
    return markdown(header, rows.values(), "ll" + "r" * (len(header) - 2)) if rows else ""


@measured("rung")
def rung_measured(run, step, variant, *shapes):
    """A sentence for one rung's "Measured": its time at each shape, and how much faster it is than its predecessor."""
    if variant not in ladder.variants_of(run.root / "steps" / step):
        raise TableError(f"{step} has no variant {variant}")
    rungs = {rung.path.name: rung for rung in ladder.variant_rungs(run.root / "steps" / step)}
    own = next((rung for rung in rungs.values() if rung.variant == variant), None)
    before = predecessor_of(own, rungs) if own else None
    said, measured_there = [], run.benchmarks(step)
    for shape in shapes:
        report = measured_there.get((step, shape))
        results = by_variant(report) if report else {}
        if variant not in results:
            continue
        text = f"{median(results[variant])} at `{shape}`"
        if before and before.variant in results:
            ratio = results[before.variant]["times_ms"]["median"] / results[variant]["times_ms"]["median"]
            text += f", {ratio:.2f} times the speed of `{before.variant}`"
        said.append(text)
    return f"**Measured on one {run.device.upper()}.** {'; '.join(said)}." if said else "**Measured.** No run of this variant is committed yet."


# ---- mutants, from what `make mutate UPDATE=1` wrote ----

WRONG = "wrong result"  # what the checker says; all else in a mutant's "by" is the simulator's, a test's, or how the program ended
FAILED = "failed test"
ENDED = ("hang", "crash", "refused", "compiler")
DONE = {"remove": "calls removed", "weaken": "waits weakened", "swap": "parts swapped", "shift": "indices shifted"}


def mutation_results(root, step):
    return read_json(root, f"results/mutants/{step}.json")


def noticed_by(mutant):
    """Who noticed a mutant, over all its runs."""
    findings = [kind for kind in mutant["by"] if kind not in (WRONG, FAILED) and not kind.startswith(ENDED)]
    if not mutant["caught"]:
        return "nobody can: it is equivalent" if mutant["equivalent"] else "nobody"
    if not findings:
        if WRONG in mutant["by"]:
            return "the checker alone"
        return "a test of the step alone" if FAILED in mutant["by"] else "neither: it hung, crashed or was refused"
    if WRONG in mutant["by"]:
        return "the simulator and the checker"
    races = all("race" in kind for kind in findings)
    return "the simulator alone, " + ("by a race" if races else "by an access that is not allowed")


def caught_by(mutant):
    """A cell: what caught a mutant, and in how many runs where not in all."""
    if not mutant["caught"]:
        return "equivalent" if mutant["equivalent"] else "**nothing**"
    part = "" if mutant["caught"] == mutant["runs"] else f" ({mutant['caught']} of {mutant['runs']})"
    return ", ".join(mutant["by"]) + part


def place_of(mutant):
    return f"{mutant['file']}:{mutant['line']}"


def as_code(text):
    return "`" + text.replace("|", "\\|") + "`"


@table("mutants")
def mutants_table(root, step):
    """How many mutants a step has, and who noticed them."""
    counts = {}
    for mutant in mutation_results(root, step)["mutants"]:
        row = counts.setdefault(noticed_by(mutant), dict.fromkeys(DONE, 0))
        row[mutant["what"].split()[0]] += 1
    verbs = [verb for verb in DONE if any(row[verb] for row in counts.values())]
    ordered = sorted(counts.items(), key=lambda item: -sum(item[1].values()))
    rows = [[who, *(row[verb] for verb in verbs)] for who, row in ordered]
    rows.append(["all", *(sum(row[verb] for row in counts.values()) for verb in verbs)])
    return markdown(["noticed by", *(DONE[verb] for verb in verbs)], rows, "l" + "r" * len(verbs))


@table("mutant-shapes")
def mutant_shapes_table(root, step):
    """What each shape is good for: how many mutants it caught, and how many no other shape did."""
    results = mutation_results(root, step)
    rows = []
    for shape, arguments in results["shapes"].items():
        where = [mutant["at"] for mutant in results["mutants"] if shape in mutant["at"]]
        alone = sum(len(at) == 1 for at in where)
        rows.append([shape, as_code(" ".join(arguments)) if arguments else "", len(where), alone])
    return markdown(["shape", "its flags", "mutants caught", "caught there alone"], rows, "llrr")


@table("mutant-calls")
def mutant_calls_table(root, step):
    """Every barrier and wait that was removed or weakened, and every swap, with the lines of the first report."""
    rows = []
    for mutant in mutation_results(root, step)["mutants"]:
        if not mutant["what"].startswith("shift "):
            lines = mutant["first"]["lines"] if mutant["first"] else []
            short = " and ".join(line.rpartition("/")[2] for line in lines)
            runs = f"{mutant['caught']} of {mutant['runs']}"
            by = ", ".join(mutant["by"]) or caught_by(mutant)
            rows.append([place_of(mutant), as_code(mutant["what"]), by, runs, mutant["right_values"], short])
    header = ["where", "what was done", "caught by", "in runs", "of these, all values right", "first report"]
    return markdown(header, rows, "lllrrl")


@table("mutant-shifts")
def mutant_shifts_table(root, step):
    """Every index that was shifted, both ways."""
    rows = {}
    for mutant in mutation_results(root, step)["mutants"]:
        verb, _, rest = mutant["what"].partition(" ")
        if verb == "shift":
            shift, _, mark = rest.partition(" ")
            rows.setdefault((place_of(mutant), as_code(mark)), {})[shift] = caught_by(mutant)
    return markdown(["where", "index", "+1", "−1"], [[*place, cells["+1"], cells["-1"]] for place, cells in rows.items()])


@table("mutants-equivalent")
def mutants_equivalent_table(root, step):
    """The mutants that nothing can notice, with the reasons that the step's mutants.json gives."""
    equivalent = [mutant for mutant in mutation_results(root, step)["mutants"] if mutant["equivalent"]]
    rows = [[place_of(mutant), as_code(mutant["what"]), mutant["equivalent"]] for mutant in equivalent]
    return markdown(["where", "what was done", "why nothing can notice"], rows)
