"""Grades names out of a list: which kernel a digest of Nsight Compute shows, what bounds it, and what should change next."""

import functools
import hashlib
import math
import re
import sys

from tools.learn.grading.run import ROOT
from tools.learn.grading.table import mystery_of, step_of
from tools.measure.profiling import bounds, digest
from tools.measure.profiling.launch import ROWS, SECTOR, Row, cell, per_cent, quotient
from tools.measure.profiling.machine import machine, measured_on, quantity

BOUNDS = [
    "DRAM bandwidth", "L2 bandwidth", "L1 sectors", "L1 requests", "shared-memory bandwidth", "shared-memory banks", "issue slots", "tensor pipe",
    "fp32 pipe", "latency",
]  # fmt: skip
# Pages print numbers beside the names of kernels. A digest that repeats them would be looked up, not read: it lacks these rows,
PRINTED = ("floor", "time", "floor / time", "DRAM read", "DRAM written", "L1 hits", "L2 hits", "registers a thread", "local memory")
SHARES = ("warps active", "issue slots", "tensor pipe", "load/store pipe")  # has these in steps of ten,
ONE_DIGIT = ("L1–L2", "warps–L1", "operations a second", "DRAM bytes a second", "L1–L2 bytes a second")  # and these to one digit
ROWS_OF_BOUNDS = {
    "DRAM bandwidth": ("DRAM bytes a second",),
    "L2 bandwidth": ("L1–L2 bytes a second",),
    "L1 sectors": ("load/store pipe", "sectors a load", "shared wavefronts"),
    "L1 requests": ("load/store pipe", "sectors a load", "shared wavefronts"),
    "shared-memory bandwidth": ("load/store pipe", "shared wavefronts", "bank conflicts"),
    "shared-memory banks": ("load/store pipe", "shared wavefronts", "bank conflicts"),
    "issue slots": ("issue slots",),
    "tensor pipe": ("tensor pipe",),
    "fp32 pipe": ("operations a second", "tensor pipe"),
}
KERNELS_DIFFER_IN = (
    "blocks", "barriers", "shuffles", "shared wavefronts", "tensor pipe", "operations", "instructions", "load requests", "store requests",
    "sectors a load", "sectors a store", "warps active",
)  # fmt: skip


def per_second(name, unit, value):
    return Row(name, "", [], lambda launch, _: quotient(value(launch), launch.seconds), lambda rate: quantity(rate, unit))


# What stands in place of times: to be compared with what the machine can do.
RATES = [
    Row("load/store pipe", "", [], lambda launch, _: launch.get("l1tex__throughput.avg.pct_of_peak_sustained_active"), per_cent),
    per_second("operations a second", "FLOP/s", lambda launch: launch.cost and launch.cost["flops"]),
    per_second("DRAM bytes a second", "B/s", lambda launch: launch.sum("dram__bytes_read.sum", "dram__bytes_write.sum")),
    per_second("L1–L2 bytes a second", "B/s", lambda launch: SECTOR * launch.sum("lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum")),
]


def seal(exercise, question, answer):
    """What stands in a MYSTERY for an answer."""
    return hashlib.sha256(f"{exercise} {question} {answer}".encode()).hexdigest()[:12]


def opened(exercise, question, sealed, names):
    """The name among these that was sealed."""
    found = [name for name in names if seal(exercise, question, name) == sealed]
    if not found:
        sys.exit(f"none of these is {question} of {exercise}: {', '.join(names)}")
    return found[0]


@functools.cache
def launches_of(exercise):
    """{letter: (what Nsight Compute counted of one kernel, the change)}, and {kernel: launch} of all that it may be."""
    mystery, step = mystery_of(exercise), step_of(exercise)
    known, found = {}, {}
    for launch in digest.committed(ROOT, measured_on(ROOT, step), step).get(mystery.case, []):
        known.setdefault(launch.kernel, launch)
    for letter, (kernel, change) in mystery.sealed.items():
        launch = known[opened(exercise, f"{letter}_kernel", kernel, known)]
        found[letter] = (launch, opened(exercise, f"{letter}_change", change, mystery.changes))
    return found, known


def gpu_of(exercise):
    """What the device that a mystery was measured on can do."""
    return machine(ROOT, measured_on(ROOT, step_of(exercise)))


def rows_of(exercise):
    """What the digest of a mystery shows."""
    return [row for row in ROWS if row.name not in PRINTED] + RATES


def about(share):
    """A share of the time, in per cent, between tens: a unit that is busy for 60 % of the time bounds a kernel."""
    tens = min(int(share // 10), 9) * 10
    return f"{tens}–{tens + 10} %"


def shown(row, launch, gpu):
    """A row's text in the digest of a mystery."""
    if row.name == "stalls":
        return re.sub(r" [\d.]+ %", "", cell(row, launch, gpu))
    value = row.value(launch, gpu)
    if row.name in SHARES and value >= 0.05:  # below, the digest says 0.0 %
        return about(value)
    return row.text(float(f"{value:.0e}")) if row.name in ONE_DIGIT and value else cell(row, launch, gpu)


def roofs(gpu):
    """What the machine can do, and how to begin."""
    ceilings = gpu["ceilings"]
    flops = lambda name: quantity(ceilings[name]["value"], "FLOP/s")
    return (
        f"Its roofs: DRAM {quantity(ceilings['copy_bytes_per_second']['value'], 'B/s')}, L2 {quantity(gpu['read_bytes_per_second']['l2'], 'B/s')}, "
        f"mma.sync {flops('mma_sync_flops_per_second')}, fp32 {flops('fp32_flops_per_second')}. The load/store pipe is L1 and shared memory:\n"
        "it passes shared wavefronts, requests of neighbouring lanes, and sectors that lie far apart. A unit that is busy for 60 % of the time bounds "
        "the kernel, of several\nthe busiest; without one it is latency (docs/profiling.md). Begin with blocks, threads and what a kernel must move. "
        '"tensor instructions" also counts an\ninstruction by which nvcc makes constants: believe the tensor pipe.\n'
    )


def table(exercise):
    """The digests without names, and the names that may be answers."""
    (found, known), gpu, mystery = launches_of(exercise), gpu_of(exercise), mystery_of(exercise)
    rows = [[row.name, *(shown(row, launch, gpu) for launch, _ in found.values())] for row in rows_of(exercise)]
    digests = digest.aligned([["", *found], *(row for row in rows if set(row[1:]) != {"-"})])
    changes = "".join(f"  {name}: {change.what}\n" for name, change in mystery.changes.items())
    return (
        f"{mystery.shape}:\n\n" + "\n".join(digests) + f"\n\n{roofs(gpu)}\n_kernel is one of: {', '.join(known)}\n_bound:  {', '.join(BOUNDS)}\n"
        f"_change, what should come next:\n{changes}"
    )


def quoted(names, launch, gpu):
    """ " [row: its number; …]": rows of the digest that speak against an answer."""
    cells = [f"{row.name}: {shown(row, launch, gpu)}" for name in names for row in [*ROWS, *RATES] if row.name == name]
    return f" [{'; '.join(cells)}]" if cells else ""


def not_this_bound(launch, answer, gpu):
    busy = {need.unit: min(100, 100 * need.seconds / launch.seconds) for need in bounds.needs(launch, gpu)}
    if answer == "latency":
        return f"not latency: some unit is busy for {about(max(busy.values()))} of the time"
    unit = bounds.L1 if answer.startswith(("L1", "shared-memory")) else answer
    rows = quoted(ROWS_OF_BOUNDS[answer], launch, gpu)
    if unit == bounds.verdict(launch, gpu).unit:
        lesson = "the right pipe, the wrong work: compare the bytes between warps and L1, 128 a cycle, with shared wavefronts and bank conflicts"
        return lesson + rows
    share = busy.get(unit, 0)
    return f"{unit}: busy for {about(share)} of the time{', but another unit is busier' if share >= 100 * bounds.BUSY else ''}{rows}"


def why_not(exercise, launch, question, answer):
    """What in the counts of a launch speaks against an answer."""
    answer = answer if isinstance(answer, str) else ""
    known, changes, gpu = launches_of(exercise)[1], mystery_of(exercise).changes, gpu_of(exercise)
    if question == "kernel" and answer in known:
        # The count in which the two differ most.
        rows = [(row, row.value(known[answer], gpu) or 0, row.value(launch, gpu) or 0) for row in ROWS if row.name in KERNELS_DIFFER_IN]
        row, *_ = max(rows, key=lambda values: abs(math.log((values[1] + 1) / (values[2] + 1))))
        return f"{answer} has {row.name}: {shown(row, known[answer], gpu)}; this one {shown(row, launch, gpu)}"
    if question == "bound" and answer in BOUNDS:
        return not_this_bound(launch, answer, gpu)
    if question == "change" and answer in changes:
        return changes[answer].lesson + quoted(changes[answer].rows, launch, gpu)
    return "not one of the list"


def expected_names(exercise):
    """{question: the right name}."""
    names = {}
    for letter, (launch, change) in launches_of(exercise)[0].items():
        verdict = bounds.verdict(launch, gpu_of(exercise)).text
        bound = next(name for name in BOUNDS if verdict.startswith(name))
        names |= {f"{letter}_kernel": launch.kernel, f"{letter}_bound": bound, f"{letter}_change": change}
    return names


def grade(report, exercise, answers, expected):
    """Shows the digests, and compares each answer: an item each, with what speaks against a wrong one."""
    report.say(table(exercise))
    found = launches_of(exercise)[0]
    for name, right_name in expected.items():
        letter, question = name.split("_")
        answer = answers.get(name)
        right = answer == right_name
        hint = "" if right else why_not(exercise, found[letter][0], question, answer) if answer else "no answer yet"
        shown = f"{name}: {answer or ''}" + (f"  ({hint})" if hint and answer else "")
        report.add(name, right, shown, hint)
    return report.passed
