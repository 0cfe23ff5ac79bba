"""The grader of numbers rejects wrong answers, says no more than a hint, and the pages do not tell."""

import json
import math
import re

import pytest
from conftest import ROOT
from graded import (
    ANSWERS,
    MYSTERIES,
    NEEDS_SOLUTIONS,
    accepts,
    exercise_of,
    expected_of,
    faults,
    name_of,
    of,
    solution_of,
)

from tools.learn import grade as grade_py
from tools.learn.grading import numbers, occupancy
from tools.learn.grading.report import Report
from tools.measure.profiling import digest, ncu

pytestmark = NEEDS_SOLUTIONS
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


# ---- what a wrong number forgets ----


@pytest.mark.long
@of(*[folder for folder in NUMBERS if exercise_of(folder) in faults.WRONG_NUMBERS])
def test_the_grader_rejects_numbers_that_forget_something(folder, capsys):
    solution, wanted = json.loads(solution_of(folder, "solution.json").read_text()), expected_of(folder)
    assert accepts(solution, wanted)
    wrong = faults.WRONG_NUMBERS[exercise_of(folder)]
    assert wrong.keys() == wanted.keys()
    for name, answers in wrong.items():
        value = wanted[name]
        near = [] if isinstance(value, str) else [-value, value + 1 if value == round(value) else value * (1 + 1.05 * numbers.TOLERANCE)]
        for answer in [*answers, 0, None, "many", *near]:
            capsys.readouterr()
            assert not accepts({**solution, name: answer}, wanted), (name, answer)
            assert capsys.readouterr().out.count("wrong  ") == 1


@pytest.mark.long
@of(ROOT / "steps" / "07_block_sparse" / "exercises" / "3_predict_time")
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
