"""Grades plain CUDA (step 00): it must be right at every size under three schedules, and touch no more memory than needed."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from tools.learn.grading.run import ROOT, TIMEOUT

SEEDS = (1, 2, 3)
KEYS = ("sectors_loaded", "sectors_stored", "barriers", "blocks")


def run(program, size, seed):
    """(the finished process, counters of its launches)."""
    with tempfile.TemporaryDirectory() as folder:
        counters = Path(folder) / "counters.json"
        environment = os.environ | {"SIM_SEED": str(seed), "SIM_COUNTERS": str(counters)}
        done = subprocess.run([program, *size], check=False, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, env=environment)
        return done, json.loads(counters.read_text()) if counters.exists() else []


def total(launches):
    """The counts of all launches together, and their threads."""
    return {key: sum(launch[key] for launch in launches) for key in KEYS} | {"threads": sum(launch["blocks"] * launch["threads"] for launch in launches)}


def why_not(launches, enough):
    """What the launches do that the solution need not, or do not do at all; "" if all is well."""
    if not launches:
        return "no kernel was launched"
    count = total(launches)
    for key, what in (("sectors_loaded", "sectors of 32 bytes are read"), ("sectors_stored", "sectors of 32 bytes are written")):
        if count[key] > 1.1 * enough[key]:
            return f"{count[key]} {what} where {enough[key]} would do: do neighbouring lanes touch neighbours, and each element once?"
        if count[key] < 0.9 * enough[key]:
            return f"{count[key]} {what}, {enough[key]} must be"
    if enough["threads"] > 1024 and count["threads"] < enough["threads"] / 16:
        return f"{count['threads']} threads do all the work; the machine has room for {enough['threads']} and more"
    if count["blocks"] > 4 * enough["blocks"]:  # of 32 threads, if need be
        return f"{count['blocks']} blocks are launched where {enough['blocks']} would do: does the grid follow from the size?"
    if enough["barriers"] and not count["barriers"]:
        return "no barrier was passed: how do the threads of a block get each other's results?"
    return ""


def grade(report, program, sizes, recorded, go_on=False):
    """An item for each size. Stops at the first that is wrong, unless it is to go on. recorded: {size: what the solution counted}."""
    for size in sizes:
        name, why = " ".join(size), ""
        for seed in SEEDS:
            try:
                done, launches = run(program, size, seed)
            except subprocess.TimeoutExpired:
                why = "it did not end within two minutes"
            else:
                why = f"{done.stdout}{done.stderr}" if done.returncode != 0 else why_not(launches, recorded[name])
            if why:
                break
        again = f"\nRun it yourself: SIM_SEED={seed} {program.relative_to(ROOT)} {name}"
        report.add(name, not why, f"{name}: {why}{again}" if why else f"{name}, {len(SEEDS)} schedules", why)
        if why and not go_on:
            break
    return report.passed


def record(program, sizes):
    """What the solution counts, for counts.json."""
    return {" ".join(size): total(run(program, size, SEEDS[0])[1]) for size in sizes}
