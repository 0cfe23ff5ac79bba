"""A handout has everything but the solutions, and its graders work."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from graded import (
    MYSTERIES,
    NEEDS_SOLUTIONS,
    SOLUTIONS,
    of,
    skip_if_worked_on,
    solution_of,
)

from tools.learn import handout

pytestmark = NEEDS_SOLUTIONS


@pytest.fixture(scope="module")
def handed_out(tmp_path_factory):
    tree = tmp_path_factory.mktemp("handout") / "FlashSteps"
    done = subprocess.run(["make", "--no-print-directory", "handout", f"OUT={tree}"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.fullmatch(rf"{tree}: \d+ files, all but solutions/.*\n", done.stdout)
    os.symlink(ROOT / ".venv", tree / ".venv")
    return tree


def graded_there(tree, folder):
    number = folder.name.split("_")[0]
    grader = [sys.executable, tree / "tools" / "learn" / "grade.py", folder.parent.parent.name[:2], number]
    return subprocess.run(grader, cwd=tree, capture_output=True, text=True, check=False)


@of(ROOT / "steps" / "00_first_kernel")
def test_the_handout_has_everything_but_solutions(handed_out, folder):
    assert not (handed_out / "solutions").exists() and not list(handed_out.rglob("solution.*"))
    assert {path.relative_to(handed_out) for path in handed_out.rglob("*") if path.is_file() and ".venv" not in path.parts} == {
        path for path in handout.files_of(ROOT) if path.parts[0] != "solutions"
    }

    def text_of(*places):
        return "\n".join(path.read_text(errors="replace") for place in places for path in (handed_out / place).rglob("*") if path.is_file())

    lessons = "\n".join(path.read_text() for path in ROOT.glob("steps/*/*.cu*"))  # what these say is no secret
    everywhere = text_of("tests", "tools")
    for path in SOLUTIONS.glob("*/*/solution.cu*"):
        text = everywhere + text_of(Path("steps") / path.parents[1].name / "exercises" / path.parent.name)
        task = (ROOT / "steps" / path.parents[1].name / "exercises" / path.parent.name / f"task{path.suffix}").read_text()
        lines = {line.strip() for line in path.read_text().splitlines()}
        telling = [line for line in lines if len(line) > 30 and line not in task + lessons and not line.startswith(("//", "#include", "using"))]
        assert not [line for line in telling if line in text], path


@of(ROOT / "steps" / "00_first_kernel")
def test_the_handouts_own_tests_of_graders_are_skipped_with_a_reason(handed_out, folder):
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests/tools/exercises", "-k", folder.name]
    done = subprocess.run(command, cwd=handed_out, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "solutions/ is missing: this is a handout" in done.stdout and " passed" not in done.stdout and " failed" not in done.stdout


@of(ROOT / "steps" / "00_first_kernel" / "exercises" / "4_predict_the_roofs", *MYSTERIES)
def test_the_handouts_graders_reject_answers_as_they_are_handed_out(handed_out, folder):
    skip_if_worked_on(folder)
    done = graded_there(handed_out, folder)
    assert done.returncode == 1 and "not yet" in done.stdout, done.stdout + done.stderr


@pytest.mark.long
@of(ROOT / "steps" / "00_first_kernel")
def test_the_handouts_graders_build_and_reject_a_kernel(handed_out, folder):
    """And accept a solution that is put in the task's place: what they compare with came along. Plain CUDA, which builds in a minute."""
    task = folder / "exercises" / "1_write_a_vector_kernel"
    skip_if_worked_on(task)
    subprocess.run(["cmake", "--preset", "sim"], cwd=handed_out, capture_output=True, text=True, check=True)
    done = graded_there(handed_out, task)
    assert done.returncode == 1 and "It does not compile" not in done.stdout and done.stdout.endswith("not yet\n"), done.stdout + done.stderr
    shutil.copy(solution_of(task, "solution.cu"), handed_out / (task / "task.cu").relative_to(ROOT))
    done = graded_there(handed_out, task)
    assert done.returncode == 0, done.stdout + done.stderr


@of(ROOT / "steps" / "00_first_kernel")
def test_a_handout_overwrites_nothing_and_needs_no_git(folder, tmp_path):
    def handed(out):
        return subprocess.run(["make", "--no-print-directory", "handout", f"OUT={out}"], cwd=ROOT, capture_output=True, text=True, check=False)

    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    for out, why in (
        ("", "needs a folder"),
        (tmp_path / "full", "not empty"),
        (tmp_path / "full" / "mine.txt", "not empty"),
        (SOLUTIONS / "new", "among the solutions"),
    ):
        done = handed(out)
        assert done.returncode != 0 and why in done.stderr, done.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "mine.txt"]

    project = tmp_path / "project"
    for name in ("Makefile", "solutions/a/solution.cuh", "build/x", ".venv/y", "steps/a/task.cuh", "tools/__pycache__/z.pyc"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    assert handout.write(project, tmp_path / "out") == 2
    assert sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()) == ["Makefile", "steps/a/task.cuh"]
