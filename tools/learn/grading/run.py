"""Runs what the graders look at: a step's executables and an exercise's, in the build for the simulator."""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tools.mutate.rebuild import alone_in

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "build" / "sim"
TIMEOUT = 120  # seconds, of one run


def program_of(exercise, which):
    """The executable of an exercise "NN_name/N_name": `which` is task or solution."""
    return BUILD / "exercises" / f"exercise_{exercise.replace('/', '_')}_{which}"


def build(*programs):
    """Builds executables of exercises; returns what the build printed if that failed, else None."""
    if not BUILD.is_dir():
        return "build/sim is missing: run make sim first\n"
    command = ["cmake", "--build", BUILD, "--target", *(program.name for program in programs)]
    with alone_in(BUILD):
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout if done.returncode != 0 else None


def results_of(*command):
    """Runs a step's or an exercise's executable; returns what its --json says: {variant: result}."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        done = subprocess.run([*map(str, command), "--json", report], check=False, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{done.stdout}{done.stderr}")
        return {result["variant"]: result for result in json.loads(report.read_text())["results"]}


def counters_of(*command):
    """{variant: its exact counters, the sums over its kernels}."""
    sums = {}
    for variant, result in results_of(*command, "--counters").items():
        sums[variant] = Counter()
        for kernel in result["counters"]:
            sums[variant].update(kernel["exact"])
    return sums


def read_counts(exercise):
    """What the solution counted, at each shape: counts.json of the exercise, which `grade.py --record` writes. {} if there is none."""
    step, name = exercise.split("/")
    path = ROOT / "steps" / step / "exercises" / name / "counts.json"
    return json.loads(path.read_text()) if path.exists() else {}
