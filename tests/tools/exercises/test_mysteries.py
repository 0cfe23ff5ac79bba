"""The mysteries: which kernel, which bound, which change."""

import json
import re
import runpy

import pytest
from conftest import ROOT
from graded import (
    MYSTERIES,
    NEEDS_SOLUTIONS,
    exercise_of,
    of,
    skip_if_worked_on,
    solution_of,
)

from tools.learn.grading import mysteries, table
from tools.learn.grading.report import Report

pytestmark = NEEDS_SOLUTIONS


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
