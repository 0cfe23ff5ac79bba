"""Grades names out of a list: which kernel a digest of Nsight Compute shows, what bounds it, and what should change next."""

import functools
import hashlib
import math
import sys
from dataclasses import dataclass

from tools.learn.grading.run import ROOT
from tools.measure.profiling import bounds, digest
from tools.measure.profiling.launch import ROWS, cell
from tools.measure.profiling.machine import machine

DEVICE = "h200"  # whose counts in results/ are shown
BOUNDS = [
    "DRAM bandwidth", "L2 bandwidth", "L1 sectors", "L1 requests", "shared-memory bandwidth", "shared-memory banks", "issue slots", "tensor pipe",
    "fp32 pipe", "latency",
]  # fmt: skip
# What a change does, and where a digest shows whether that is what the kernel lacks.
CHANGES = {
    "on_chip": ("keep the matrices of pairs on the chip", "it saves bytes of DRAM: compare DRAM read and written with the floor and the time"),
    "tensor_cores": ("multiply by mma.sync", "it pays where lanes multiply one by one: compare the tensor pipe with operations and time"),
    "larger_tiles": ("give a warp more keys, so that a fragment feeds more mma", "it saves ldmatrix: compare shared wavefronts with tensor instructions"),
    "next_tile": ("copy the next tile while this one is multiplied", "it pays where nothing is busy, because warps wait for copies"),
    "padding": ("pad the rows in shared memory", "it saves bank conflicts: are they many beside the shared wavefronts?"),
    "wide_loads": ("load 16 bytes a lane from global memory", "it saves requests and instructions: are these busy?"),
}


@dataclass(frozen=True)
class Mystery:
    """Launches of one step at one case of results/, each under a letter. What they are stands here sealed, so that nobody reads it by
    accident: {letter: (kernel, change)}."""

    step: str
    case: str
    shape: str
    sealed: dict


MYSTERIES = {
    "06_backward/4_a_mystery": Mystery(
        step="06_backward",
        case="4k-d128",
        shape="16 heads, 4096 queries and keys, head dim 128, fp16, on an H200",
        sealed={"A": ("05cdb97eed3c", "d56be91a06de"), "B": ("139de8b0657b", "20697b4d381b"), "C": ("7cb5e59d1c6a", "fe6af4765f5e")},
    ),
}


def seal(exercise, question, answer):
    """What stands in MYSTERIES for an answer."""
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
    mystery = MYSTERIES[exercise]
    known, found = {}, {}
    for launch in digest.committed(ROOT, DEVICE, mystery.step).get(mystery.case, []):
        known.setdefault(launch.kernel, launch)
    for letter, (kernel, change) in mystery.sealed.items():
        launch = known[opened(exercise, f"{letter}_kernel", kernel, known)]
        found[letter] = (launch, opened(exercise, f"{letter}_change", change, CHANGES))
    return found, known


def table(exercise):
    """The digests without names, and the names that may be answers."""
    (found, known), gpu = launches_of(exercise), machine(ROOT)
    rows = [[row.name, *(cell(row, launch, gpu) for launch, _ in found.values())] for row in ROWS]
    digests = digest.aligned([["", *found], *(row for row in rows if set(row[1:]) != {"-"})])
    changes = "".join(f"  {name}: {what}\n" for name, (what, _) in CHANGES.items())
    return (
        f"{MYSTERIES[exercise].shape}:\n\n" + "\n".join(digests) + f"\n\n_kernel is one of: {', '.join(known)}\n_bound:  {', '.join(BOUNDS)}\n"
        f"_change, what should come next:\n{changes}"
    )


def why_not(launch, question, answer, known):
    """What in the counts of a launch speaks against an answer."""
    answer = answer if isinstance(answer, str) else ""
    h200 = machine(ROOT)
    if question == "kernel" and answer in known:
        # The count in which the two differ most.
        names = ("blocks", "barriers", "shuffles", "shared wavefronts", "tensor instructions", "operations", "DRAM read", "instructions")
        rows = [(row, row.value(known[answer], h200) or 0, row.value(launch, h200) or 0) for row in ROWS if row.name in names]
        row, theirs, ours = max(rows, key=lambda values: abs(math.log((values[1] + 1) / (values[2] + 1))))
        return f"{answer} has {row.name}: {row.text(theirs)}; this one {row.text(ours)}"
    if question == "bound" and answer in BOUNDS:
        busy = {need.unit: 100 * need.seconds / launch.seconds for need in bounds.needs(launch, h200)}
        if answer == "latency":
            return f"not latency: some unit is busy for {max(busy.values()):.0f} % of the time"
        unit = bounds.L1 if answer.startswith(("L1", "shared-memory")) else answer
        if unit == bounds.verdict(launch, h200).unit:
            return "the right pipe, the wrong work: compare the bytes between warps and L1, 128 a cycle, with shared wavefronts and bank conflicts"
        return f"{unit}: busy for {busy.get(unit, 0):.0f} % of the time"
    if question == "change" and answer in CHANGES:
        return CHANGES[answer][1]
    return "not one of the list"


def expected_names(exercise):
    """{question: the right name}."""
    names = {}
    for letter, (launch, change) in launches_of(exercise)[0].items():
        verdict = bounds.verdict(launch, machine(ROOT)).text
        bound = next(name for name in BOUNDS if verdict.startswith(name))
        names |= {f"{letter}_kernel": launch.kernel, f"{letter}_bound": bound, f"{letter}_change": change}
    return names


def grade(report, exercise, answers, expected):
    """Shows the digests, and compares each answer: an item each, with what speaks against a wrong one."""
    report.say(table(exercise))
    found, known = launches_of(exercise)
    for name, right_name in expected.items():
        letter, question = name.split("_")
        answer = answers.get(name)
        right = answer == right_name
        hint = "" if right else why_not(found[letter][0], question, answer, known) if answer else "no answer yet"
        shown = f"{name}: {answer or ''}" + (f"  ({hint})" if hint and answer else "")
        report.add(name, right, shown, hint)
    return report.passed
