"""What the tests of the graders share: the exercises, a build of each kernel that they try, and whether the grader accepts it.

A handout has no solutions: there all of these tests are skipped.
"""

import functools
import importlib
import os
import re
import runpy
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import ROOT

from tools.learn.grading import kernels, numbers, table
from tools.learn.grading import run as running
from tools.learn.grading.report import Report
from tools.mutate.rebuild import Rebuild

BUILD = ROOT / "build" / "sim"
SOLUTIONS = ROOT / "solutions"
EXERCISES = sorted(folder for folder in ROOT.glob("steps/*/exercises/*") if folder.is_dir())
KERNELS = [folder for folder in EXERCISES if (folder / "task.cuh").exists()]
PLAIN = [folder for folder in EXERCISES if (folder / "task.cu").exists()]  # plain CUDA: step 00
ANSWERS = [folder for folder in EXERCISES if (folder / "answers.json").exists()]
MYSTERIES = [folder for folder in EXERCISES if folder.name.endswith("_a_mystery")]


class NoFaults:
    """Stands for solutions/faults.py in a handout."""

    def __getattr__(self, name):
        return {}


def all_faults():
    """solutions/faults.py, and what solutions/NN_name/faults.py adds to its tables: a step's own file, so that no other step's proofs depend on it."""
    found = importlib.import_module("solutions.faults")
    for path in sorted(SOLUTIONS.glob("*/faults.py")):
        of_step = runpy.run_path(str(path))
        for name in found.TABLES:
            mine = of_step.get(name, {})
            exercises = {key if isinstance(key, str) else key[0] for key in mine}
            assert all(exercise.startswith(f"{path.parent.name}/") for exercise in exercises), f"{path}: {name} tells of another step"
            getattr(found, name).update(mine)
    return found


faults = all_faults() if SOLUTIONS.is_dir() else NoFaults()
NEEDS_SOLUTIONS = pytest.mark.skipif(not SOLUTIONS.is_dir(), reason="solutions/ is missing: this is a handout")


def name_of(folder):
    """Every test's name has its step's: each step has a ctest entry."""
    return f"{folder.parent.parent.name}-{folder.name}" if isinstance(folder, Path) else None


def of(*folders):
    return pytest.mark.parametrize("folder", folders, ids=name_of)


def exercise_of(folder):
    return f"{folder.parent.parent.name}/{folder.name}"


def solution_of(folder, name):
    """A file of the exercise's solution."""
    return SOLUTIONS / folder.parent.parent.name / folder.name / name


def executable(folder, kernel):
    return running.program_of(exercise_of(folder), kernel)


def passes(folder, kernel):
    """Whether the grader accepts a kernel that is built; it prints why not."""
    exercise = exercise_of(folder)
    return kernels.grade(Report(exercise), executable(folder, kernel), table.kernel_of(exercise), running.read_counts(exercise))


def expected_of(folder):
    return cached_numbers(exercise_of(folder))


@functools.cache
def cached_numbers(exercise):
    return table.expected_of(exercise)


def accepts(answers, wanted):
    """Whether the grader accepts numbers; it prints a line for each."""
    return numbers.grade(Report(""), answers, wanted)


@functools.cache
def build_step(step):
    """Builds what every exercise of a step hands out, and its solution: all at once."""
    programs = [executable(folder, which) for folder in KERNELS + PLAIN if folder.parent.parent.name == step for which in ("task", "solution")]
    if programs:
        said = running.build(*programs)
        assert said is None, said


def grade(folder, *flags):
    build_step(folder.parent.parent.name)
    step = folder.parent.parent.name.split("_")[0]
    number = folder.name.split("_")[0]
    return subprocess.run([sys.executable, ROOT / "tools" / "learn" / "grade.py", step, number, *flags], capture_output=True, text=True, check=False)


def skip_if_worked_on(folder):
    written = [path for name in ("task.cuh", "task.cu", "answers.json") if (path := folder / name).exists()]
    if subprocess.run(["git", "diff", "--quiet", "--", *written], cwd=ROOT, check=False).returncode != 0:  # beside what is staged
        pytest.skip("you have worked on this exercise; grade it with make exercise")


@functools.cache
def rebuild_of(folder):
    """Compiles and links as the build does an exercise's solution."""
    build_step(folder.parent.parent.name)
    solution = executable(folder, "solution")
    return Rebuild(BUILD, BUILD / "steps" / f"{solution.name}.cu", f"exercises/{solution.name}")


@functools.cache
def precompiled(exercises):
    """The folder of a header, compiled: what all exercises of a step include. With it a kernel compiles in two thirds of the time. Python
    deletes the folder when it ends."""
    made = tempfile.TemporaryDirectory()
    header = Path(made.name) / "exercise.h"
    header.write_text(f'#include "{exercises / "exercise.h"}"\n')
    rebuild = rebuild_of(next(folder for folder in KERNELS if folder.parent == exercises))
    assert rebuild.compile(header, header.with_suffix(".h.gch"), is_header=True) is None
    return made


def build_variants(folder, texts):
    """Builds further kernels of an exercise, {name: text}, by the commands that build its solution."""
    rebuild = rebuild_of(folder)
    header = Path(precompiled(folder.parent).name) / "exercise.h"

    def build(name, text):
        program = executable(folder, name)
        kernel, source, compiled = (program.with_suffix(suffix) for suffix in (".cuh", ".cu", ".o"))
        kernel.write_text(text)
        source.write_text(f'#define EXERCISE_KERNEL "{kernel}"\n#include "{folder / "exercise.cu"}"\n')
        return rebuild.compile(source, compiled, "-include", header) or rebuild.link(compiled, program)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        assert list(pool.map(build, texts, texts.values())) == [None] * len(texts)


def run_kernel(folder, kernel, *args):
    return subprocess.run([executable(folder, kernel), *args], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def with_faults(folder, faults):
    solution = solution_of(folder, "solution.cuh").read_text()
    assert all(solution.count(right) == 1 for right, _ in faults.values())
    build_variants(folder, {name: solution.replace(right, wrong) for name, (right, wrong) in faults.items()})


def rejected(folder, kernel, reason, capsys):
    capsys.readouterr()
    assert not passes(folder, kernel)
    assert re.search(reason, said := capsys.readouterr().out), said
