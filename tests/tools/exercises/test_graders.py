"""The graders are graded: each must reject the exercise as it is handed out, and accept its solution; and reject kernels that are right and lazy, or
from scratch and almost right (solutions/faults.py)."""

import json
import re
import subprocess

import pytest
from conftest import ROOT
from graded import (
    EXERCISES,
    KERNELS,
    NEEDS_SOLUTIONS,
    PLAIN,
    build_step,
    build_variants,
    executable,
    exercise_of,
    faults,
    grade,
    of,
    passes,
    rejected,
    run_kernel,
    skip_if_worked_on,
    solution_of,
)

from tools.learn.grading import kernels, plain, table
from tools.learn.grading import run as running

pytestmark = NEEDS_SOLUTIONS


@of(*EXERCISES)
def test_the_grader_rejects_the_task_as_it_is_handed_out(folder):
    skip_if_worked_on(folder)
    done = grade(folder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "not yet" in done.stdout


@of(*EXERCISES)
def test_the_grader_accepts_the_solution(folder):
    done = grade(folder, "--solution", "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    assert done.stdout.count("right  ") == 2 or folder not in KERNELS + PLAIN


@pytest.mark.long
@of(*KERNELS, *PLAIN)
def test_the_grader_accepts_the_solution_at_every_shape(folder):
    done = grade(folder, "--solution")
    assert done.returncode == 0, done.stdout + done.stderr
    shapes = table.sizes_of(exercise_of(folder)) if folder in PLAIN else table.kernel_of(exercise_of(folder)).shapes
    assert done.stdout.count("right  ") == len(shapes)


@pytest.mark.long
@of(*KERNELS, *PLAIN)
def test_the_counts_that_the_grader_compares_with_are_the_solutions(folder):
    build_step(folder.parent.parent.name)
    exercise, program = exercise_of(folder), executable(folder, "solution")
    counts = plain.record(program, table.sizes_of(exercise)) if folder in PLAIN else kernels.record(program, table.kernel_of(exercise))
    assert running.read_counts(exercise) == counts, f"make them anew: tools/learn/grade.py {exercise[:2]} {folder.name[0]} --record"


# ---- what is handed out ----


@of(*[folder for folder in EXERCISES if exercise_of(folder) in faults.GIVE_AWAYS])
def test_neither_the_task_nor_its_page_says_the_answer(folder):
    skip_if_worked_on(folder)
    page = (ROOT / "docs" / f"{folder.parent.parent.name}.md").read_text().split("\n## Exercises\n")[0]
    task = "".join(path.read_text() for path in folder.glob("task.cu*"))
    assert not [phrase for phrase in faults.GIVE_AWAYS[exercise_of(folder)] if phrase in page or phrase in task]


def with_includes(path, seen):
    """The text of a source of ours, and of those that it includes."""
    if path in seen or not path.exists():
        return ""
    seen.add(path)
    text = re.sub(r"//[^\n]*", "", path.read_text())
    included = [(path.parent / name if (path.parent / name).exists() else ROOT / name) for name in re.findall(r'#include "([^"]+)"', text)]
    return text + "".join(with_includes(one.resolve(), seen) for one in included)


@of(*KERNELS)
def test_a_task_defines_or_includes_the_types_that_it_names(folder):
    """So that a reader finds them, starting at the file."""
    task = folder / "task.cuh"
    text = with_includes(task, set())
    named = set(re.findall(r"(?<![\w\"])[A-Z][A-Za-z]*[a-z]\w*\b", re.sub(r"//[^\n]*", "", task.read_text())))
    defined = set(re.findall(r"\b(?:struct|class|using|typename|enum(?: class)?) (?:alignas\(\d+\) )?(\w+)", text))
    assert named - defined == {"Br", "Bc"} & named  # constants, with the names of the paper


# ---- points, as JSON ----


@pytest.mark.parametrize("flags, points", [(["--solution"], 5), ([], 0)], ids=["right", "unanswered"])
@of(ROOT / "steps" / "00_first_kernel" / "exercises" / "4_predict_the_roofs")
def test_the_grader_gives_points_for_answers_as_one_json_object(folder, flags, points):
    if not flags:
        skip_if_worked_on(folder)
    verdict = json.loads(grade(folder, "--json", *flags).stdout)
    assert verdict.keys() == {"exercise", "passed", "points", "of", "items"}
    assert (verdict["exercise"], verdict["passed"]) == (exercise_of(folder), points == 5)
    assert (verdict["points"], verdict["of"], len(verdict["items"])) == (points, 5, 5)
    assert all(item.keys() == {"name", "right", "hint"} and bool(item["hint"]) != item["right"] for item in verdict["items"])


@pytest.mark.long
@of(ROOT / "steps" / "03_online_softmax" / "exercises" / "3_write_the_merge", ROOT / "steps" / "00_first_kernel" / "exercises" / "2_write_a_row_maximum")
def test_the_grader_tries_every_shape_for_its_points(folder):
    skip_if_worked_on(folder)
    shapes = len(running.read_counts(exercise_of(folder)))
    for flags, passed in ((["--solution"], True), ([], False)):
        verdict = json.loads(grade(folder, "--json", *flags).stdout)
        assert (verdict["passed"], verdict["of"], len(verdict["items"])) == (passed, shapes, shapes)
        assert verdict["points"] == sum(item["right"] for item in verdict["items"])
        assert all(item["hint"] for item in verdict["items"] if not item["right"])


@of(ROOT / "steps" / "00_first_kernel")
def test_make_exercise_sends_what_the_build_says_to_stderr(folder):
    make = subprocess.run(["make", "--no-print-directory", "-n", "exercise", "STEP=01", "N=2", "JSON=1"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.search(r"tools/build sim[ \w]* >&2 && .*--json$", make.strip()), make


# ---- kernels whose result is right, and which do not do what was asked for ----


@pytest.mark.long
@pytest.mark.parametrize("exercise, name", faults.LAZY, ids=lambda value: value.replace("/", "-"))
def test_the_grader_rejects_a_kernel_that_is_right_and_lazy(exercise, name, capsys):
    start, reason, pieces = faults.LAZY[exercise, name]
    step, number = exercise.split("/")
    folder = ROOT / "steps" / step / "exercises" / number
    if start == "task":
        skip_if_worked_on(folder)
    text = ((folder / "task.cuh") if start == "task" else solution_of(folder, "solution.cuh")).read_text()
    for there, put in pieces:
        if isinstance(there, tuple):  # all from the first to the second
            there = text[text.index(there[0]) : text.index(there[1])]
        assert text.count(there) == 1, there
        text = text.replace(there, put)
    build_variants(folder, {f"lazy_{name}": text})
    flags = [*table.kernel_of(exercise).shapes[-1], "--sim-seed", "1"]
    done = run_kernel(folder, f"lazy_{name}", *flags)
    assert done.returncode == 0, done.stdout + done.stderr  # right it is
    capsys.readouterr()
    assert not passes(folder, f"lazy_{name}")
    assert re.search(f"the result is right, but .*({reason})", said := capsys.readouterr().out), said


# ---- kernels from scratch: exercises 4 of steps 02, 03 and 05 ----


def build_pieces(exercise, name, pieces):
    """Builds an exercise's solution with these pieces in place of others; returns the exercise's folder."""
    step, number = exercise.split("/")
    folder = ROOT / "steps" / step / "exercises" / number
    text = solution_of(folder, "solution.cuh").read_text()
    for there, put in pieces:
        assert text.count(there) == 1, there
        text = text.replace(there, put)
    build_variants(folder, {name: text})
    return folder


@pytest.mark.long
@pytest.mark.parametrize("exercise, name", faults.FROM_SCRATCH, ids=lambda value: value.replace("/", "-"))
def test_the_grader_rejects_a_kernel_from_scratch_with_one_fault_and_says_which(exercise, name, capsys):
    reason, pieces = faults.FROM_SCRATCH[exercise, name]
    rejected(build_pieces(exercise, name, pieces), name, reason, capsys)


@pytest.mark.long
@pytest.mark.parametrize("exercise, name", faults.RIGHT_FROM_SCRATCH, ids=lambda value: value.replace("/", "-"))
def test_the_grader_accepts_another_kernel_from_scratch_that_is_right(exercise, name):
    assert passes(build_pieces(exercise, name, faults.RIGHT_FROM_SCRATCH[exercise, name]), name)
