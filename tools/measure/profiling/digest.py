"""The numbers of launches as text: tables for a terminal and for results/digests/, rows for the book."""

import json

from tools.measure.profiling import ncu
from tools.measure.profiling.bounds import verdict
from tools.measure.profiling.launch import ROWS, cell, from_ncu, per_cent
from tools.measure.profiling.machine import DEVICES, machine, measured_on, quantity


def grouped(launches):
    """{variant: its launches}, in order."""
    groups = {}
    for launch in launches:
        groups.setdefault(launch.variant, []).append(launch)
    return groups


def aligned(rows):
    """Lines of text in columns: the first to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(text.rjust(width) if i else text.ljust(width) for i, (text, width) in enumerate(zip(row, widths))).rstrip() for row in rows
    ]


def table(launches, device):
    """A variant's table, a column for each kernel, and a line for each that says what bounds it. Rows that say nothing are left out: not
    known to this source, or 0 for every kernel."""
    rows = [["", *(launch.kernel for launch in launches)]]
    for row in ROWS:
        cells = [cell(row, launch, device) for launch in launches]
        if any(text not in {"-", "0", "0 B", "~0", "0.0 %"} for text in cells):
            rows.append([row.name, *cells])
    width = max(len(launch.kernel) for launch in launches)
    bounds = [f"{launch.kernel.ljust(width)}  {verdict(launch, device).text}" for launch in launches]
    return "\n".join([*aligned(rows), "", "What bounds it:", *bounds])


def text(launches, device):
    """The tables of all variants."""
    parts = []
    for variant, group in grouped(launches).items():
        parts.append((f"---- {variant} ----\n\n" if variant else "") + table(group, device))
    return "\n\n".join(parts) + "\n"


def by_kernel(launches, device):
    """[kernel, time, floor / time, what bounds it] of the first launch of each kernel."""
    first = {}
    for launch in launches:
        first.setdefault(launch.kernel, launch)
    rows = []
    for name, launch in first.items():
        floor = launch.floor(device)
        rows.append(
            [
                f"`{name}`",
                quantity(launch.seconds, "s") if launch.seconds else "-",
                per_cent(100 * floor / launch.seconds) if floor and launch.seconds else "-",
                verdict(launch, device).text,
            ]
        )
    return rows


def meanings():
    """[row, what it is, its metrics] of all rows."""
    return [[row.name, row.meaning, "<br>".join(f"`{name}`" for name in row.metrics) or "-"] for row in ROWS]


# ---- from committed measurements ----


def bench(root, device):
    """{(step, shape): report} of results/DEVICE/bench.json."""
    path = root / "results" / device / "bench.json"
    return {(report["step"], report["shape"]): report for report in json.loads(path.read_text())} if path.exists() else {}


def committed(root, device, step):
    """{shape: launches} of results/DEVICE/ncu_STEP.csv, at the shapes that were benchmarked too: the benchmark's report says what the
    kernels must do, and to which variant they belong. No launches where profile and benchmark are of other variants."""
    rows = ncu.measured(root / "results" / device / f"ncu_{step}.csv")
    reports = bench(root, device)
    found = {}
    for shape in rows:
        if (step, shape) in reports:
            try:
                found[shape] = from_ncu(rows[shape], reports[step, shape])
            except ncu.NcuError:
                found[shape] = []
    return found


def measured_steps(root):
    """{step: the device on which it was measured} of the steps with committed profiles."""
    names = {path.stem.removeprefix("ncu_") for device in DEVICES for path in (root / "results" / device).glob("ncu_*.csv")}
    return {name: measured_on(root, name) for name in sorted(names) if not name.startswith("calibration")}


def digest(root, device, step):
    """The whole profile of a step in text, for readers without a GPU."""
    summary = json.loads((root / "results" / device / "summary.json").read_text())
    where, kept = summary[f"ncu {step}"]["machine"], summary[f"ncu {step}"].get("kept", {})  # kept: {shape: its older sources}
    head = (
        f"{step}: what Nsight Compute counted on one {where['name']} ({where['date'][:10]}, driver {where['driver_version']},\n"
        f"sources {where['commit']}). Written by tools/measure/profile_step.py --digest from results/{device}/;\n"
        f"docs/profiling.md says how to read it.\n"
    )
    ceilings = machine(root, device)
    shapes = committed(root, device, step)
    old = f"Profile and benchmark are of other variants: measure again (make gpu-check STEP={step[:2]}).\n"
    title = lambda name: f"==== shape {name}{f', sources {kept[name]}' if name in kept else ''} ===="
    parts = (f"{title(name)}\n\n{text(launches, ceilings) if launches else old}" for name, launches in shapes.items())
    return "\n".join([head, *parts])
