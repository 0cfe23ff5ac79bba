"""The ladder of one step, rung by rung."""

import json
import re

from tools.book.tables.registry import TableError, markdown, measured_table
from tools.book.tables.times import softmax_rate
from tools.measure import ladder
from tools.measure.committed import by_variant, median

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


@measured_table("rungs")
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


@measured_table("rung")
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
