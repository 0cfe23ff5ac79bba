"""Grades a kernel: it must be right at every shape under several schedules, and do no more than the solution does, by the counters.

What the solution counted stands in counts.json beside the exercise (grade.py --record), so that nobody needs the solution to grade.
"""

import json
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from tools.learn.grading.run import ROOT, TIMEOUT
from tools.measure.profiling import ncu

ALL = "all"  # the kernels of a launch together


def shape_name(shape):
    return " ".join(shape) or "default shape"


def copies_left_in_flight(trace):
    """How many cp.async of the traced warp are still under way when a wait for others has ended, added up over its waits: what a
    pipeline copies while it multiplies."""
    groups, filling, left = [], 0, 0
    for event in map(json.loads, trace.splitlines()):
        operation = event.get("op", "")
        if operation.startswith("cp.async.c") and "global" in event:
            filling += 1
        elif operation == "cp.async.commit_group":
            groups.append(filling)
            filling = 0
        elif operation == "cp.async.wait_group":
            groups = groups[len(groups) - event["operand"] :] if event["operand"] < len(groups) else groups
            left += sum(groups)
        elif operation == "cp.async.wait_all":
            groups, filling = [], 0
    return left


def counts_of(report, trace):
    """{kernel: {metric: count}} of what a program's --json and --trace say, and of all its kernels together."""
    (result,) = report["results"]
    counts = {ALL: Counter()}
    for kernel in result["counters"]:
        exact = Counter(kernel["exact"])
        exact["wavefronts_lost"] = exact["memory_l1_wavefronts_shared"] - exact["memory_l1_wavefronts_shared_ideal"]
        counts.setdefault(ncu.base_name(kernel["kernel"]), Counter()).update(exact)
        counts[ALL].update(exact)
    if trace:
        counts[ALL]["copies_left_in_flight"] = copies_left_in_flight(trace)
    return {kernel: dict(exact) for kernel, exact in counts.items()}


def run(program, flags, counted=False, traced=False):
    """Runs a kernel; returns (why it is wrong or "", its counts or None)."""
    with tempfile.TemporaryDirectory() as folder:
        report, trace = Path(folder) / "report.json", Path(folder) / "trace.jsonl"
        extra = (["--counters", "--json", report] if counted else []) + (["--trace", trace] if traced else [])
        done = subprocess.run([program, *flags, *extra], check=False, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT)
        if done.returncode != 0:
            said = f"{' '.join(flags)}\n\n{done.stderr}\n{done.stdout}"  # what is wrong first; then what a right run says, too
            # Once more without counters, which would bury what is wrong.
            return (counted and run(program, flags)[0]) or said, None
        return "", counts_of(json.loads(report.read_text()), trace.read_text() if traced else "") if counted else None


def more_than(counts, least):
    """What is counted that is not of the solution: what a kernel says that may do no more work than needed."""
    more = [f"{name} {count} where {least[ALL].get(name, 0)} would do" for name, count in counts[ALL].items() if count > least[ALL].get(name, 0)]
    return f"the result is right, but not for the least work: {', '.join(more)}" if more else ""


def beyond(bounds, counts, least):
    """The first bound that is not kept, as the lesson to learn; "" if all are."""
    for bound in bounds:
        if bound.kernel not in counts:
            return f"no kernel {bound.kernel} was launched"
        count, solution = (them[bound.kernel].get(bound.metric, 0) for them in (counts, least))
        if count > bound.most * solution or count < bound.least * solution:
            return "the result is right, but " + bound.lesson.format(count=f"{count:,}", solution=f"{solution:,}")
    return ""


def grade(report, program, exercise, recorded, go_on=False):
    """An item for each shape. Stops at the first that is wrong, unless it is to go on.

    exercise: its entry of table.KERNELS; recorded: what the solution counted, {shape: {kernel: {metric: count}}}.
    """
    hanging = ""
    for shape in exercise.shapes:
        name, why = shape_name(shape), hanging
        for number, schedule in enumerate(exercise.schedules):
            if why:
                break
            flags = [*shape, *schedule]
            counted = number == 0 and exercise.counted
            try:
                why, counts = run(program, flags, counted, counted and exercise.traced)
            except subprocess.TimeoutExpired:
                why = f"{' '.join(flags)}: it did not end within two minutes"
                hanging = "not tried, because the kernel did not end at another shape"
            if not why and counted:
                why = more_than(counts, recorded[name]) if exercise.no_more_work else beyond(exercise.bounds, counts, recorded[name])
                why = why and f"{name}: {why}"
                flags += ["--counters"]
        again = f"\nRun it yourself: {' '.join([str(program.relative_to(ROOT)), *flags])}"
        report.add(name, not why, f"{why}{again}" if why else f"{name}, {len(exercise.schedules)} schedules", why)
        if why and not go_on:
            break
    return report.passed


def record(program, exercise):
    """What the solution counts, for counts.json: all, or what the exercise's bounds look at."""
    recorded = {}
    for shape in exercise.shapes if exercise.counted else []:
        why, counts = run(program, [*shape, *exercise.schedules[0]], counted=True, traced=exercise.traced)
        if why:
            raise SystemExit(why)
        wanted = [(ALL, metric) for metric in counts[ALL]] if exercise.no_more_work else [(bound.kernel, bound.metric) for bound in exercise.bounds]
        of_shape = recorded[shape_name(shape)] = {}
        for kernel, metric in wanted:
            of_shape.setdefault(kernel, {})[metric] = counts[kernel].get(metric, 0)
    return recorded
