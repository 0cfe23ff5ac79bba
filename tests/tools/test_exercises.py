"""The graders are graded: each must reject the exercise as it is handed out, and accept its solution; and reject answers and kernels that
are wrong, almost right, or right and lazy (solutions/faults.py). A handout has no solutions: there all of this is skipped.
"""

import functools
import importlib
import json
import math
import os
import re
import runpy
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

from tools.learn import grade as grade_py
from tools.learn import handout
from tools.learn.grading import (
    kernels,
    mysteries,
    numbers,
    occupancy,
    plain,
    table,
)
from tools.learn.grading import run as running
from tools.learn.grading.report import Report
from tools.measure.profiling import digest, ncu
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


faults = importlib.import_module("solutions.faults") if SOLUTIONS.is_dir() else NoFaults()
pytestmark = pytest.mark.skipif(not SOLUTIONS.is_dir(), reason="solutions/ is missing: this is a handout")


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


STEP_06 = ROOT / "steps" / "06_backward" / "exercises"
SHARES, LAST_BLOCK, BYTES = (STEP_06 / name for name in ("1_fill_in_ds", "2_find_the_race", "3_predict_bytes"))


def race_mends(mends):
    """{name: the task with this in place of what it has}."""
    task = (LAST_BLOCK / "task.cuh").read_text()
    branch = "  if (threadIdx.x == 0) {\n"
    assert task.count(branch + faults.COUNT) == 1
    return {name: task.replace(branch + faults.COUNT, before + branch + inside) for name, (before, inside) in mends.items()}


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


# ---- numbers: wrong answers, for every grader ----

NUMBERS = [folder for folder in ANSWERS if folder not in MYSTERIES]


@pytest.mark.parametrize(
    "folder",
    [pytest.param(folder, marks=[] if folder.parent.parent.name.startswith("00") else pytest.mark.long, id=name_of(folder)) for folder in NUMBERS],
)
def test_the_grader_rejects_every_wrong_number_and_says_no_more_than_a_hint(folder, capsys):
    right = json.loads(solution_of(folder, "solution.json").read_text())
    wanted = expected_of(folder)
    assert right.keys() == wanted.keys() == json.loads((folder / "answers.json").read_text()).keys()
    assert accepts(right, wanted)
    for name, value in wanted.items():
        wrong = [None, "", "many", True, [value], {"is": value}, math.nan, math.inf, -math.inf, 0, 10**400]
        if not isinstance(value, str):
            by = 1 if value == round(value) else abs(value) * numbers.TOLERANCE * 1.05
            wrong += [value + by, value - by, -value, str(value), 2 * value, value / 12]
        for answer in wrong:
            capsys.readouterr()
            assert not accepts({**right, name: answer}, wanted), (name, answer)
            said = capsys.readouterr().out
            assert said.count("wrong  ") == 1 and f"wrong  {name}: {answer}" in said
            hint = said.split(f"wrong  {name}: {answer}")[1].split("\n")[0]
            small = isinstance(value, str) or abs(value) < numbers.SMALL  # a factor may look like it
            assert small or not re.search(rf"\b{re.escape(f'{value:g}')}\b|\b{value}\b", hint), hint
        assert not accepts({key: answer for key, answer in right.items() if key != name}, wanted)
        assert not accepts({f"{key} " if key == name else key: answer for key, answer in right.items()}, wanted)
        for other in wanted:
            if not numbers.is_right(right[other], value):
                assert not accepts({**right, name: right[other], other: right[name]}, wanted), (name, other)


@of(*NUMBERS)
def test_the_page_does_not_print_the_numbers_that_its_exercise_asks_for(folder):
    step = folder.parent.parent.name[:2]
    pages = [*ROOT.glob(f"docs/{step}*.md"), *([ROOT / "docs" / "ceilings.md"] if step == "00" else [])]
    words = set(re.findall(r"[\d,.]*\d", "\n".join(page.read_text() for page in pages)))
    asked = json.loads(solution_of(folder, "solution.json").read_text()).values()
    counts = [value for value in asked if isinstance(value, int) and value > 1000 and value & (value - 1)]  # powers of two are everywhere
    counts = [value for value in counts if (step, value) != ("06", 7168)]  # 06b: the ldmatrix of another variant at another shape
    assert not [value for value in counts if {str(value), f"{value:,}"} & words]


@pytest.mark.parametrize(
    ("text", "why"),
    [("[1, 2]", "a name for each answer"), ('{"fma_tflops": 1,}', "is not JSON"), ("7", "a name for each answer"), ('{"fma_tflops": NaN}', "must be a number")],
)
@of(ROOT / "steps" / "00_first_kernel" / "exercises" / "4_predict_the_roofs")
def test_what_is_no_list_of_answers_is_refused_in_words(folder, text, why, tmp_path, capsys):
    (tmp_path / "answers.json").write_text(text)
    report = Report(exercise_of(folder), as_json=True)
    grade_py.grade_answers(report, tmp_path / "answers.json")
    assert report.finish() == 1
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["points"], verdict["of"]) == (0, 5) and why in verdict["items"][0]["hint"]


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


# ---- exercise 5 of step 05: how many blocks a multiprocessor holds ----

TILES = ROOT / "steps" / "05_flash_v2" / "exercises" / "5_tiles_by_occupancy"


@of(TILES)
def test_the_grader_rejects_blocks_that_forget_a_limit(folder, capsys):
    solution, wanted = json.loads(solution_of(folder, "solution.json").read_text()), expected_of(folder)
    assert faults.WRONG_BLOCKS.keys() == wanted.keys()
    for name, answers in faults.WRONG_BLOCKS.items():
        for answer in answers:
            capsys.readouterr()
            assert not accepts({**solution, name: answer}, wanted), (name, answer)
            (line,) = re.findall(r"^wrong  .*$", capsys.readouterr().out, re.MULTILINE)
            assert "times" not in line  # of so small a number, a factor would be the answer


@of(TILES)
def test_the_tiles_of_the_exercise_are_none_of_the_steps_and_different_limits_decide(folder):
    asked = json.loads((folder / "tiles.json").read_text())
    h200 = json.loads((ROOT / asked["gpus"]["h200"]).read_text())
    known = [launch.get("launch__registers_per_thread") for launch in digest.committed(ROOT, "h200", "05_flash_v2")["4k-d128"]]
    decide = set()
    for gpu in (h200, asked["gpus"]["99k"]):
        for tile in asked["tiles"].values():
            assert tile["registers"] not in known
            limits = occupancy.limits(gpu, tile)
            decide |= {what for what, blocks in limits.items() if blocks == min(limits.values())}
    assert decide == {"registers", "shared_mem"}


@of(TILES)
def test_blocks_on_a_multiprocessor_are_those_that_nsight_compute_says(folder):
    """Of every launch that was profiled on an H200. The driver gives shared memory no more than these blocks need, so that its limit alone
    may be lower than ours."""
    h200 = json.loads((ROOT / "docs" / "machine" / "h200.json").read_text())
    seen = set()
    for path in sorted((ROOT / "results" / "h200").glob("ncu_*.csv")):
        for row in (row for rows in ncu.measured(path).values() for row in rows if row.get("launch__occupancy_limit_warps")):
            threads = math.prod(map(int, re.findall(r"\d+", row["Block Size"])))
            registers = int(ncu.real(row["launch__registers_per_thread"]))
            shared = sum(int(ncu.real(row[f"launch__shared_mem_per_block_{kind}"])) for kind in ("dynamic", "static"))
            theirs = {what: ncu.real(row[f"launch__occupancy_limit_{what}"]) for what in ("registers", "shared_mem", "warps", "blocks")}
            if threads % 32 == 0:
                block = {"threads": threads, "registers": registers, "shared_bytes": shared}
                ours = occupancy.limits(h200, block)
                assert [what for what in theirs if theirs[what] != ours[what] and what != "shared_mem"] == [], block
                assert min(theirs.values()) == occupancy.blocks(h200, block), block
                seen.add((threads, registers, shared))
    assert len(seen) > 100


# ---- the handout ----


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
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests/tools/test_exercises.py", "-k", folder.name]
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


def build_variants(folder, texts):
    """Builds further kernels of an exercise, {name: text}, by the commands that build its solution."""
    build_step(folder.parent.parent.name)
    solution = executable(folder, "solution")
    rebuild = Rebuild(BUILD, BUILD / "steps" / f"{solution.name}.cu", f"exercises/{solution.name}")

    def build(name, text):
        program = executable(folder, name)
        kernel, source, compiled = (program.with_suffix(suffix) for suffix in (".cuh", ".cu", ".o"))
        kernel.write_text(text)
        source.write_text(f'#define EXERCISE_KERNEL "{kernel}"\n#include "{folder / "exercise.cu"}"\n')
        return rebuild.compile(source, compiled) or rebuild.link(compiled, program)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        assert list(pool.map(build, texts, texts.values())) == [None] * len(texts)


def run_kernel(folder, kernel, *args):
    return subprocess.run([executable(folder, kernel), *args], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


# ---- step 00: plain CUDA that is right, but not what was asked for, or wrong ----


@pytest.mark.long
@pytest.mark.parametrize(("exercise", "fault"), faults.PLAIN_FAULTS)
@of(ROOT / "steps" / "00_first_kernel")
def test_the_grader_rejects_plain_cuda_that_is_not_what_was_asked_for(folder, exercise, fault, tmp_path, capsys):
    right, wrong, reason = faults.PLAIN_FAULTS[exercise, fault]
    exercise = folder / "exercises" / exercise
    build_step(folder.name)
    text = solution_of(exercise, "solution.cu").read_text()
    assert text.count(right) == 1
    (tmp_path / "faulty.cu").write_text(text.replace(right, wrong))
    solution, program = executable(exercise, "solution"), executable(exercise, fault.replace(" ", "_"))
    made = program.with_suffix(".cu")
    subprocess.run([sys.executable, ROOT / "cmake" / "plain_cuda.py", made, tmp_path / "faulty.cu", exercise / "check.cu"], check=True)
    rebuild = Rebuild(BUILD, BUILD / "steps" / f"{solution.name}.cu", f"exercises/{solution.name}")
    assert (rebuild.compile(made, program.with_suffix(".o")) or rebuild.link(program.with_suffix(".o"), program)) is None
    passed = plain.grade(Report(""), program, table.sizes_of(exercise_of(exercise)), running.read_counts(exercise_of(exercise)))
    said = capsys.readouterr().out
    assert passed == (reason is None), said
    assert reason is None or re.search(reason, said), said


# ---- exercise 4 of step 01: each of its five faults alone ----

FIVE_REPORTS = ROOT / "steps" / "01_naive_mha" / "exercises" / "4_five_reports"
RAGGED = ["--seq-q", "13", "--seq-k", "45", "--dim", "33"]  # where every fault shows


def replaced(text, fault):
    assert text.count(fault.right) == 1, fault.right
    return text.replace(fault.right, fault.wrong)


def line_numbers(text, fault):
    """Where the fault's reports must point to, in a kernel file."""
    lines = text.splitlines()
    return {next(number for number, line in enumerate(lines, start=1) if part in line) for part in fault.lines}


def code(kernel):
    """A kernel file without its opening comment."""
    return kernel[kernel.index("#pragma once") :]


@pytest.fixture(scope="module")
def single_faults():
    """Builds the solution with each fault put back, alone. Returns the texts."""
    solution = solution_of(FIVE_REPORTS, "solution.cuh").read_text()
    texts = {name: replaced(solution, fault) for name, fault in faults.FAULTS.items()}
    build_variants(FIVE_REPORTS, texts)
    return texts


@pytest.mark.long
@pytest.mark.parametrize("seed", ["1", "2", "3", "4"])
@pytest.mark.parametrize("name", faults.FAULTS)
@of(FIVE_REPORTS)
def test_each_of_the_five_faults_alone_has_its_report(single_faults, folder, name, seed):
    fault = faults.FAULTS[name]
    done = run_kernel(folder, name, *RAGGED, "--sim-seed", seed)
    assert done.returncode == 1, done.stdout + done.stderr
    reports = re.findall(r"^exercise_01_4: yours: ([a-z -]+): (.*\n(?:  .*\n)+)", done.stderr, re.MULTILINE)
    assert {kind for kind, _ in reports} == fault.kinds
    assert all(fault.about in text for _, text in reports), done.stderr
    accesses = [re.sub(r", called at \S+", "", text) for _, text in reports]
    named = {int(line) for text in accesses for line in re.findall(r"\.cuh:(\d+)", text)}
    assert named == line_numbers(single_faults[name], fault)


@pytest.mark.long
@pytest.mark.parametrize("seed", ["1", "2", "3", "4"])
@of(FIVE_REPORTS)
def test_without_the_five_faults_there_is_no_report(single_faults, folder, seed):
    done = run_kernel(folder, "solution", *RAGGED, "--sim-seed", seed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""


@of(FIVE_REPORTS)
def test_the_task_has_the_five_faults_and_its_answers_name_their_lines(folder):
    skip_if_worked_on(folder)
    text = solution_of(folder, "solution.cuh").read_text()
    for fault in faults.FAULTS.values():
        text = replaced(text, fault)
    task = (folder / "task.cuh").read_text()
    assert code(task) == code(text)
    named = {int(line) for line in re.findall(r"task\.cuh:(\d+)", solution_of(folder, "solution.md").read_text())}
    assert named == set.union(*(line_numbers(task, fault) for fault in faults.FAULTS.values()))


# ---- exercise 2 of step 02: what hides its fault ----

MISSING_WAIT = ROOT / "steps" / "02_tiled_gemm" / "exercises" / "2_find_the_missing_wait"


@pytest.fixture(scope="module")
def broken_pipeline():
    skip_if_worked_on(MISSING_WAIT)
    build_step(MISSING_WAIT.parent.parent.name)


@pytest.mark.long
@pytest.mark.parametrize("seed", ["1", "2", "3"])
@pytest.mark.parametrize("mode", ["late", "eager"])
@of(MISSING_WAIT)
def test_eager_copies_hide_the_missing_wait_from_the_result_and_not_from_the_simulator(broken_pipeline, folder, tmp_path, mode, seed):
    for k in (128, 192, 256, 456):
        flags = ["--k", str(k), "--sim-async", mode, "--sim-seed", seed, "--json", tmp_path / "report.json"]
        done = run_kernel(folder, "task", *flags)
        assert done.returncode == 1, done.stderr
        (result,) = json.loads((tmp_path / "report.json").read_text())["results"]
        (c,) = result["verdict"]["tensors"]
        assert c["pass"] == (mode == "eager")
        reports = re.findall(r"race: read of PipelineSmem<__half>::stage\[(\d)\].*, to which an asynchronous copy is under way", done.stderr)
        assert reports
        assert {int(stage) for stage in reports} == {(-(-k // 64) - 1) % 3}  # the last tile's


@pytest.mark.long
@pytest.mark.parametrize("mode", ["late", "eager", "random"])
@of(MISSING_WAIT)
def test_a_single_tile_hides_the_missing_wait(broken_pipeline, folder, mode):
    done = run_kernel(folder, "task", "--k", "64", "--sim-async", mode)
    assert (done.returncode, done.stderr) == (0, "")


# ---- exercise 3 of step 02: loads that are almost right ----

B_LOAD = ROOT / "steps" / "02_tiled_gemm" / "exercises" / "3_write_the_b_load"


@pytest.fixture(scope="module")
def almost_right_loads():
    solution = solution_of(B_LOAD, "solution.cuh").read_text()
    assert all(solution.count(part) == 1 for part in (faults.PLACE, *faults.LANES))
    unswizzled = solution.replace(faults.PLACE, "t").replace("place(int row, int t)", "place(int, int t)")
    texts = {
        "as_a": solution.replace(faults.LANES[0], "lane % 16").replace(faults.LANES[1], "lane / 16 * chunk"),
        "unswizzled": unswizzled,
        "padded": unswizzled.replace("[tile_k]", "[tile_k + chunk]"),
    }
    build_variants(B_LOAD, texts)


@pytest.mark.long
@pytest.mark.parametrize("kernel, reason", [("as_a", r"C: row .*: error"), ("unswizzled", "the result is right, but"), ("padded", "the result is right, but")])
@of(B_LOAD)
def test_the_grader_rejects_loads_that_are_almost_right_and_says_why(almost_right_loads, capsys, folder, kernel, reason):
    assert not passes(folder, kernel)
    assert re.search(reason, capsys.readouterr().out)


@pytest.mark.long
@of(B_LOAD)
def test_padding_frees_the_loads_of_conflicts_and_not_the_stores(almost_right_loads, folder, tmp_path):
    run_kernel(folder, "padded", "--counters", "--json", tmp_path / "report.json")
    (result,) = json.loads((tmp_path / "report.json").read_text())["results"]
    lines = [line for line in result["counters"][0]["lines"] if line["space"] == "shared"]
    conflicting = {(line["op"], line["wavefronts"] > line["wavefronts_ideal"]) for line in lines}
    assert conflicting == {("ldmatrix", False), ("store", True)}


# ---- exercises 2 and 3 of step 03: each fault alone ----

SOFTMAX_FAULT = ROOT / "steps" / "03_online_softmax" / "exercises" / "2_find_the_fault"
MERGE = ROOT / "steps" / "03_online_softmax" / "exercises" / "3_write_the_merge"


def with_faults(folder, faults):
    solution = solution_of(folder, "solution.cuh").read_text()
    assert all(solution.count(right) == 1 for right, _ in faults.values())
    build_variants(folder, {name: solution.replace(right, wrong) for name, (right, wrong) in faults.items()})


@pytest.fixture(scope="module")
def faulty_softmaxes():
    with_faults(SOFTMAX_FAULT, faults.SOFTMAX_FAULTS)
    with_faults(MERGE, faults.MERGE_FAULTS)


@pytest.mark.long
@pytest.mark.parametrize("seed", ["1", "2", "3"])
@of(SOFTMAX_FAULT)
def test_a_missing_barrier_is_a_race_whatever_comes_out(faulty_softmaxes, folder, seed):
    done = run_kernel(folder, "barrier", "--cols", "37", "--sim-seed", seed)
    assert done.returncode == 1
    assert re.search(r"(race|uninitialised read): .*Smem::states\[", done.stderr), done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    "folder, kernel, cols, right",
    [
        (SOFTMAX_FAULT, "factors", 1000, False),
        (SOFTMAX_FAULT, "factors", 1, True),
        (SOFTMAX_FAULT, "empty", 112, True),  # lane 16 of the last warp holds nothing, and meets lane 0, which does
        (SOFTMAX_FAULT, "empty", 111, False),
        (MERGE, "one_sided", 1000, False),
        (MERGE, "not_a_number", 1000, True),
        (MERGE, "not_a_number", 37, False),
    ],
    ids=name_of,
)
def test_what_a_fault_of_a_softmax_does_and_where_it_does_not_show(faulty_softmaxes, folder, kernel, cols, right):
    done = run_kernel(folder, kernel, "--cols", str(cols))
    assert done.returncode == (0 if right else 1), done.stdout + done.stderr
    assert right or re.search(r"y: row \(\d+\)", done.stderr)


@pytest.mark.long
@pytest.mark.parametrize(
    "folder, kernel", [(SOFTMAX_FAULT, name) for name in faults.SOFTMAX_FAULTS] + [(MERGE, name) for name in faults.MERGE_FAULTS], ids=name_of
)
def test_the_grader_rejects_every_faulty_softmax(faulty_softmaxes, folder, kernel):
    assert not passes(folder, kernel)


# ---- exercise 3 of step 04: each factor alone ----

UPDATE = ROOT / "steps" / "04_flash_v1" / "exercises" / "3_write_the_update"


@pytest.fixture(scope="module")
def faulty_updates():
    with_faults(UPDATE, {name: (right, wrong) for name, (_, right, wrong) in faults.UPDATE_FAULTS.items()})


@pytest.mark.long
@pytest.mark.parametrize("kernel", faults.UPDATE_FAULTS)
@of(UPDATE)
def test_the_grader_rejects_an_update_that_forgets_a_factor(faulty_updates, capsys, folder, kernel):
    rejected(folder, kernel, faults.UPDATE_FAULTS[kernel][0], capsys)


# ---- step 06: shares that are almost right, races that are half mended, numbers and names that are wrong ----


@pytest.fixture(scope="module")
def almost_right_shares():
    with_faults(SHARES, {name: (right, wrong) for name, (_, right, wrong) in faults.SHARES_FAULTS.items()})


@pytest.mark.long
@pytest.mark.parametrize("kernel", faults.SHARES_FAULTS)
@of(SHARES)
def test_the_grader_rejects_shares_that_are_almost_right_and_says_which_gradient(almost_right_shares, capsys, folder, kernel):
    rejected(folder, kernel, rf"yours: {faults.SHARES_FAULTS[kernel][0]}: row .*: (error|NaN|inf)", capsys)


@pytest.fixture(scope="module")
def half_mended():
    skip_if_worked_on(LAST_BLOCK)
    build_variants(LAST_BLOCK, race_mends(faults.RACE_MENDS))


@pytest.mark.long
@pytest.mark.parametrize("kernel", faults.RACE_MENDS)
@of(LAST_BLOCK)
def test_the_grader_rejects_half_a_mend_by_its_race(half_mended, capsys, folder, kernel):
    assert not passes(folder, kernel)
    assert re.search(r"race: .* of '(dq_sums|arrived)'", capsys.readouterr().out)


@pytest.mark.long
@of(LAST_BLOCK)
def test_the_grader_accepts_the_other_right_mend(folder):
    skip_if_worked_on(folder)
    # Everyone fences on the far side of the barriers.
    text = race_mends({"all_fence": ("  __threadfence();\n" + faults.BARRIER, faults.COUNT)})["all_fence"]
    after = "  __syncthreads();  // the count is there before anyone reads it\n"
    build_variants(folder, {"all_fence": text.replace(after, after + "  __threadfence();\n")})
    assert passes(folder, "all_fence")


@pytest.mark.parametrize("seed", ["1", "2", "3"])
@of(LAST_BLOCK)
def test_the_simulator_names_both_lines_of_the_race_and_the_gradients_are_right(folder, seed, tmp_path):
    skip_if_worked_on(folder)
    build_step(folder.parent.parent.name)
    done = run_kernel(folder, "task", "--sim-seed", seed, "--json", tmp_path / "report.json")
    assert done.returncode == 1
    lines = (folder / "task.cuh").read_text().splitlines()
    named = {lines[int(line) - 1].strip() for line in re.findall(r"task\.cuh:(\d+)", done.stderr)}
    assert len(named) == 2 and any("red_add_f32" in line for line in named) and any("convert<" in line for line in named), done.stderr
    (result,) = json.loads((tmp_path / "report.json").read_text())["results"]
    assert all(tensor["pass"] for tensor in result["verdict"]["tensors"])
    alone = run_kernel(folder, "task", "--seq-k", "4", "--sim-seed", seed)  # one block a head
    assert (alone.returncode, alone.stderr) == (0, "")


@pytest.mark.long
@of(BYTES)
def test_the_grader_rejects_numbers_that_forget_something(folder, capsys):
    solution, wanted = json.loads(solution_of(folder, "solution.json").read_text()), expected_of(folder)
    assert accepts(solution, wanted)
    assert faults.WRONG_BYTES.keys() == wanted.keys()
    for name, answers in faults.WRONG_BYTES.items():
        for answer in [*answers, 0, None, "many", -wanted[name], wanted[name] + 1]:
            capsys.readouterr()
            assert not accepts({**solution, name: answer}, wanted), (name, answer)
            assert capsys.readouterr().out.count("wrong  ") == 1


# ---- mysteries: which kernel, which bound, which change ----


def accepts_names(folder, answers):
    exercise = exercise_of(folder)
    return mysteries.grade(Report(exercise), exercise, answers, mysteries.expected_names(exercise))


def names_of(folder):
    """{question: the names that are offered}."""
    mystery = table.mystery_of(exercise_of(folder))
    return {"kernel": list(mysteries.launches_of(exercise_of(folder))[1]), "bound": mysteries.BOUNDS, "change": list(mystery.changes)}


@of(*MYSTERIES)
def test_the_grader_rejects_every_other_name_says_why_and_does_not_give_the_answer(folder, capsys):
    solution = json.loads(solution_of(folder, "solution.json").read_text())
    assert accepts_names(folder, solution)
    assert set(solution) == {f"{letter}_{question}" for letter in "ABC" for question in names_of(folder)}
    for question, right in solution.items():
        choices = names_of(folder)[question.split("_")[1]]
        assert right in choices
        for wrong in [name for name in choices if name != right] + ["", "nothing", 7, ["list"]]:
            capsys.readouterr()
            assert not accepts_names(folder, {**solution, question: wrong})
            (line,) = re.findall(r"^wrong  .*$", capsys.readouterr().out, re.MULTILINE)
            assert line.startswith(f"wrong  {question}: {wrong}")
            assert (re.search(r"  \(.{12,}\)$", line) is not None) == (wrong != "")
            assert ("not one of the list" in line) == (wrong != "" and wrong not in choices)
            assert not re.search(rf"\b{right}\b", line.replace(str(wrong), "")), line


@of(*MYSTERIES)
def test_a_wrong_change_is_answered_by_rows_of_the_digest(folder):
    """So that every hint names what speaks against it."""
    exercise = exercise_of(folder)
    mystery, shown = table.mystery_of(exercise), {row.name for row in mysteries.rows_of(exercise)}
    for name, change in mystery.changes.items():
        assert set(change.rows) <= shown and change.rows, name
        for launch, right in mysteries.launches_of(exercise)[0].values():
            hint = mysteries.why_not(exercise, launch, "change", name)
            assert name == right or hint.startswith(change.lesson) and all(f"{row}: " in hint for row in change.rows)
    assert all(set(rows) <= shown for rows in mysteries.ROWS_OF_BOUNDS.values())


@of(*MYSTERIES)
def test_a_mystery_asks_for_three_kernels_and_offers_wrong_changes(folder):
    exercise = exercise_of(folder)
    found, known = mysteries.launches_of(exercise)
    assert list(found) == ["A", "B", "C"] and len({launch.kernel for launch, _ in found.values()}) == 3
    offered = set(table.mystery_of(exercise).changes)
    assert len(offered - {change for _, change in found.values()}) >= 3 and len(known) > 3


@of(*MYSTERIES)
def test_the_digests_of_the_mystery_name_no_kernel(folder):
    exercise = exercise_of(folder)
    shown = mysteries.table(exercise).split("_kernel is one of")[0]
    assert not [name for name in [*names_of(folder)["kernel"], *names_of(folder)["change"], "What bounds"] if name in shown]
    assert all(row in shown for row in ("DRAM bytes a second", "shared wavefronts", "stalls"))


@of(*MYSTERIES)
def test_no_number_of_the_mystery_stands_on_the_page_beside_the_name_of_its_kernel_alone(folder):
    """Else the kernel is looked up in a table that the reader has just read."""
    exercise = exercise_of(folder)
    page = (ROOT / "docs" / f"{folder.parent.parent.name}.md").read_text()
    known = mysteries.launches_of(exercise)[1]
    lines = [(kernel, line) for kernel in known for line in page.splitlines() if f"`{kernel}`" in line]
    shown = mysteries.table(exercise).split("_kernel is one of")[0]
    names = mysteries.expected_names(exercise)
    for column, letter in enumerate("ABC", 1):
        for row, text in cells_of(shown, column).items():
            # Numbers with their units; a share of the time is none of its own.
            for number in re.findall(r"(?<![\d.,–])\d[\d.,]*(?: (?:[kMGT]?B|%|[kMGT]?FLOP|[GT]?B/s|[GT]?FLOP/s)(?!\w))?(?![\d.,]*\d|–)", text):
                beside = {kernel for kernel, line in lines if re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d.,]*\d)", line)}
                assert beside != {names[f"{letter}_kernel"]} or len(number) < 3, (letter, row, number)


def cells_of(text, column):
    """{row: its text} of one column of a table."""
    names = {row.name for row in mysteries.ROWS + mysteries.RATES}
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    return {row[0]: row[column] for row in rows if row[0] in names}


def digest_of(step, case, kernel):
    """{row: its text} of a kernel's first column in results/digests/."""
    text = (ROOT / "results" / "digests" / f"{step}.txt").read_text().split(f"==== shape {case}")[1].split("==== shape")[0]
    for part in text.split("\n---- "):
        heads = next((line.split() for line in part.splitlines() if kernel in line.split()), None)
        if heads:
            return cells_of(part.split("What bounds it:")[0], heads.index(kernel) + 1)
    raise AssertionError(f"{kernel} is in no digest of {step}")


@of(*MYSTERIES)
def test_the_digests_of_the_mystery_are_those_of_the_committed_results(folder):
    mystery = table.mystery_of(exercise_of(folder))
    shown = mysteries.table(exercise_of(folder)).split("_kernel is one of")[0]
    for column, letter in enumerate("ABC", 1):
        kernel = json.loads(solution_of(folder, "solution.json").read_text())[f"{letter}_kernel"]
        theirs, ours = digest_of(folder.parent.parent.name, mystery.case, kernel), cells_of(shown, column)
        assert len(ours.keys() & theirs.keys()) >= 15
        rounded = {"stalls", *mysteries.SHARES, *mysteries.ONE_DIGIT}
        both = ours.keys() & theirs.keys()
        assert {row: ours[row] for row in both - rounded} == {row: theirs[row] for row in both - rounded}
        for row in both & set(mysteries.SHARES):
            bounds = re.fullmatch(r"(\d+)–(\d+) %", ours[row])
            share = float(theirs[row].split()[0])
            assert (ours[row] == theirs[row] == "0.0 %") or float(bounds[1]) - 0.5 <= share <= float(bounds[2]) + 0.5
        assert ours["stalls"] == re.sub(r" [\d.]+ %", "", theirs["stalls"])
        assert theirs.keys() - ours.keys() <= set(mysteries.PRINTED)
        rates = {row.name for row in mysteries.RATES}
        zero = {row for row in ours.keys() - theirs.keys() - rates if ours[row] in {"0", "0 B", "0.0 %", "-"}}  # of all kernels of a digest
        assert ours.keys() - theirs.keys() == rates | zero


@of(*MYSTERIES)
def test_the_rates_of_the_mystery_are_the_counts_by_the_time(folder):
    for launch, _ in mysteries.launches_of(exercise_of(folder))[0].values():
        rates = {row.name: row.value(launch, None) for row in mysteries.RATES}
        seconds = launch.get("gpu__time_duration.sum") / 1e9
        assert rates["DRAM bytes a second"] == pytest.approx((launch.get("dram__bytes_read.sum") + launch.get("dram__bytes_write.sum")) / seconds)
        assert rates["operations a second"] == pytest.approx(launch.cost["flops"] / seconds)
        assert 0 < rates["load/store pipe"] <= 100


@of(*MYSTERIES)
def test_the_grader_of_the_mystery_does_not_tell_what_it_shows(folder):
    """Kernels do not stand in its sources, nor do answers in what the reader fills in; changes and bounds are lists that all letters share."""
    grading = ROOT / "tools" / "learn" / "grading"
    text = "".join(path.read_text() for path in (grading / "mysteries.py", grading / "changes.py", folder / "grading.py"))
    solution = json.loads(solution_of(folder, "solution.json").read_text())
    assert not [name for question, name in solution.items() if question.endswith("_kernel") and re.search(rf"\b{name}\b", text)]
    skip_if_worked_on(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["answers.json", "grading.py"]
    assert json.loads((folder / "answers.json").read_text()) == dict.fromkeys(solution, "")


@of(*MYSTERIES)
def test_each_change_of_the_mystery_removes_what_bounds_its_kernel(folder):
    counted = runpy.run_path(str(solution_of(folder, "counts.py")))["counted"](mysteries.launches_of(exercise_of(folder))[1])
    assert len(counted) >= 3 and all(counted)


# ---- step 07: lists that are almost right, a fault that is half mended, wrong numbers, rows that are cut or merged wrongly ----

STEP_07 = ROOT / "steps" / "07_block_sparse" / "exercises"
LIST, LISTS_END, TIME, BALANCE = (STEP_07 / name for name in ("1_build_the_list", "2_a_fault_at_a_lists_end", "3_predict_time", "4_balance_a_bad_mask"))


@pytest.fixture(scope="module")
def almost_right_lists():
    with_faults(LIST, {name: (right, wrong) for name, (_, right, wrong) in faults.LIST_FAULTS.items()})


@pytest.fixture(scope="module")
def half_mended_walks():
    skip_if_worked_on(LISTS_END)
    task = (LISTS_END / "task.cuh").read_text()

    def mended(mends):
        text = task
        for right, wrong in mends:
            assert text.count(right) == 1, right
            text = text.replace(right, wrong)
        return text

    half = {name: mends for name, (_, mends) in faults.WALK_MENDS.items()}
    build_variants(LISTS_END, {name: mended(mends) for name, mends in (half | faults.RIGHT_MENDS).items()})


@pytest.fixture(scope="module")
def almost_balanced():
    with_faults(BALANCE, {name: (right, wrong) for name, (_, right, wrong) in faults.BALANCE_FAULTS.items()})


def rejected(folder, kernel, reason, capsys):
    capsys.readouterr()
    assert not passes(folder, kernel)
    assert re.search(reason, said := capsys.readouterr().out), said


@pytest.mark.long
@pytest.mark.parametrize("kernel", faults.LIST_FAULTS)
@of(LIST)
def test_the_grader_rejects_lists_that_are_almost_right_and_says_where(almost_right_lists, capsys, folder, kernel):
    rejected(folder, kernel, faults.LIST_FAULTS[kernel][0], capsys)


@pytest.mark.long
@pytest.mark.parametrize("kernel", faults.WALK_MENDS)
@of(LISTS_END)
def test_the_grader_rejects_half_a_mend_by_its_report_or_by_what_it_copies(half_mended_walks, capsys, folder, kernel):
    rejected(folder, kernel, faults.WALK_MENDS[kernel][0], capsys)


@pytest.mark.long
@pytest.mark.parametrize("kernel", faults.RIGHT_MENDS)
@of(LISTS_END)
def test_the_grader_accepts_the_other_right_mends(half_mended_walks, folder, kernel):
    assert passes(folder, kernel)


@pytest.mark.parametrize("seed", ["1", "2", "3"])
@of(LISTS_END)
def test_the_simulator_names_the_copy_of_the_index_and_the_results_are_right(folder, seed, tmp_path):
    skip_if_worked_on(folder)
    build_step(folder.parent.parent.name)
    done = run_kernel(folder, "task", "--sim-seed", seed, "--json", tmp_path / "report.json")
    assert done.returncode == 1
    report = re.search(r"out-of-bounds read: read of 4 bytes, \d bytes past the end of 'tiles'.*\n.*\n.*?task\.cuh:(\d+)", done.stderr)
    assert report, done.stderr
    assert faults.COPY in (folder / "task.cuh").read_text().splitlines()[int(report[1]) - 1]
    (result,) = json.loads((tmp_path / "report.json").read_text())["results"]
    assert all(tensor["pass"] for tensor in result["verdict"]["tensors"])


@pytest.mark.long
@of(TIME)
def test_the_grader_rejects_tiles_that_forget_something(folder, capsys):
    solution, wanted = json.loads(solution_of(folder, "solution.json").read_text()), expected_of(folder)
    assert accepts(solution, wanted)
    assert faults.WRONG_TILES.keys() == wanted.keys()
    for name, answers in faults.WRONG_TILES.items():
        for answer in [*answers, None, "many", -1, ["tokens"]]:
            capsys.readouterr()
            assert not accepts({**solution, name: answer}, wanted), (name, answer)
            (line,) = re.findall(r"^wrong  .*$", capsys.readouterr().out, re.MULTILINE)
            assert name != "saves_least_of_197" or not isinstance(answer, str) or line == f"wrong  {name}: {answer}"  # no hint


@pytest.mark.long
@pytest.mark.parametrize("kernel", faults.BALANCE_FAULTS)
@of(BALANCE)
def test_the_grader_rejects_rows_that_are_cut_or_merged_wrongly_and_says_why(almost_balanced, capsys, folder, kernel):
    rejected(folder, kernel, faults.BALANCE_FAULTS[kernel][0], capsys)
