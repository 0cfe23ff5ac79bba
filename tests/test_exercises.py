"""The graders are graded: each must reject the exercise as it is handed out, and accept its solution."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXERCISES = sorted(folder for folder in ROOT.glob("steps/*/exercises/*") if folder.is_dir())


def grade(folder, *flags):
    step = folder.parent.parent.name.split("_")[0]
    number = folder.name.split("_")[0]
    return subprocess.run([sys.executable, ROOT / "tools" / "grade.py", step, number, *flags], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("folder", EXERCISES, ids=lambda folder: folder.name)
def test_the_grader_rejects_the_task_as_it_is_handed_out(folder):
    if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", folder], cwd=ROOT, check=False).returncode != 0:
        pytest.skip("you have worked on this exercise; grade it with make exercise")
    done = grade(folder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "not yet" in done.stdout


@pytest.mark.parametrize("folder", EXERCISES, ids=lambda folder: folder.name)
def test_the_grader_accepts_the_solution(folder):
    done = grade(folder, "--solution")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
