"""Grades an exercise: tools/grade.py 01 2 builds and runs what you wrote; --solution grades ours instead.

An exercise is a folder steps/NN_name/exercises/N_name. With an answers.json it asks for numbers, which are compared with what the
step's executable predicts. With a task.cuh it asks for a kernel, which must pass the checker and the simulator at every shape below
and under several schedules. Exit status 0: passed.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MEASURED_BANDWIDTH = 4.25e12  # bytes/s of a copy on an H200, read plus written

SHAPES = [
    [],
    ["--seq-q", "1", "--seq-k", "3", "--dim", "1"],
    ["--seq-q", "97", "--seq-k", "203", "--dim", "40", "--causal"],
    ["--seq-q", "40", "--seq-k", "17", "--dim", "64", "--causal"],
    ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "33", "--seq-k", "300", "--dim", "33"],
]


def expected_numbers(binary):
    """What exercise 1 of step 01 asks for, computed from the executable's own prediction for the tour's shape."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [binary, "--variant", "row_per_thread", "--heads", "12", "--seq-q", "207", "--dim", "32", "--no-check", "--json", report]
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
        scores, softmax, pv = json.loads(report.read_text())["results"][0]["kernels"]
    moved = [kernel["bytes_read"] + kernel["bytes_written"] for kernel in (scores, softmax, pv)]
    return {
        "S_bytes": scores["bytes_written"],
        "scores_flops": scores["flops"],
        "softmax_bytes": moved[1],
        "all_kernels_bytes": sum(moved),
        "floor_microseconds": sum(moved) / MEASURED_BANDWIDTH * 1e6,
    }


def grade_numbers(answers, binary):
    """Compares each answer; prints one line each, with a hint instead of the right number."""
    right = True
    for name, expected in expected_numbers(binary).items():
        answer = answers.get(name)
        tolerance = 0.02 if name.endswith("microseconds") else 0
        ok = isinstance(answer, (int, float)) and math.isclose(answer, expected, rel_tol=tolerance, abs_tol=0)
        hint = "" if ok or not isinstance(answer, (int, float)) or not answer else f"  ({answer / expected:.3g} times the right number)"
        print(f"{'right' if ok else 'wrong'}  {name}: {answer}{hint}")
        right &= ok
    return right


def grade_kernel(binary):
    """Runs the kernel at every shape under three schedules; stops at the first that fails and shows why."""
    for shape in SHAPES:
        for seed in ("1", "2", "3"):
            command = [str(binary), *shape, "--sim-seed", seed]
            try:
                done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=120)
            except subprocess.TimeoutExpired:
                print(f"wrong  {' '.join(command)} did not end within two minutes")
                return False
            if done.returncode != 0:
                print(f"wrong  {' '.join(shape) or 'default shape'}, schedule {seed}\n\n{done.stdout}{done.stderr}")
                print(f"Run it yourself: {binary.relative_to(ROOT)} {' '.join([*shape, '--sim-seed', seed])}")
                return False
        print(f"right  {' '.join(shape) or 'default shape'}, 3 schedules")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", help="two digits: 01")
    parser.add_argument("number", help="of the exercise: 2")
    parser.add_argument("--solution", action="store_true", help="grade the solution that comes with the exercise")
    args = parser.parse_args()
    folders = list(ROOT.glob(f"steps/{args.step}_*/exercises/{args.number}_*"))
    if len(folders) != 1:
        known = ", ".join(sorted(str(f.relative_to(ROOT / "steps")) for f in ROOT.glob("steps/*/exercises/[0-9]_*")))
        parser.error(f"there is no exercise {args.number} of step {args.step}; there are: {known}")
    folder = folders[0]
    step = folder.parent.parent.name
    which = "solution" if args.solution else "task"
    if (folder / "answers.json").exists():
        answers = json.loads((folder / ("solution.json" if args.solution else "answers.json")).read_text())
        right = grade_numbers(answers, ROOT / "build" / "sim" / "bin" / step)
    else:
        target = f"exercise_{step}_{folder.name}_{which}"
        build = ["cmake", "--build", ROOT / "build" / "sim", "--target", target]
        built = subprocess.run(build, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if built.returncode != 0:
            print(f"It does not compile:\n{built.stdout}")
        right = built.returncode == 0 and grade_kernel(ROOT / "build" / "sim" / "exercises" / target)
    print("passed" if right else "not yet")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
