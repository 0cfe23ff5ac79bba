"""The graders reject kernels that are almost right, or half mended (solutions/faults.py and solutions/NN_name/faults.py), and say why; by step."""

import json
import re
import subprocess
import sys

import pytest
from conftest import ROOT
from graded import (
    KERNELS,
    NEEDS_SOLUTIONS,
    build_step,
    build_variants,
    executable,
    exercise_of,
    faults,
    name_of,
    of,
    passes,
    rebuild_of,
    rejected,
    run_kernel,
    skip_if_worked_on,
    solution_of,
    with_faults,
)

from tools.learn.grading import plain, table
from tools.learn.grading import run as running
from tools.learn.grading.report import Report

pytestmark = NEEDS_SOLUTIONS


# ---- step 00: plain CUDA that is right, but not what was asked for, or wrong ----


@pytest.mark.long
@pytest.mark.parametrize(("exercise", "fault"), faults.PLAIN_FAULTS)
@of(ROOT / "steps" / "00_first_kernel")
def test_the_grader_rejects_plain_cuda_that_is_not_what_was_asked_for(folder, exercise, fault, tmp_path, capsys):
    right, wrong, reason = faults.PLAIN_FAULTS[exercise, fault]
    exercise = folder / "exercises" / exercise
    text = solution_of(exercise, "solution.cu").read_text()
    assert text.count(right) == 1
    (tmp_path / "faulty.cu").write_text(text.replace(right, wrong))
    program = executable(exercise, fault.replace(" ", "_"))
    made = program.with_suffix(".cu")
    subprocess.run([sys.executable, ROOT / "cmake" / "plain_cuda.py", made, tmp_path / "faulty.cu", exercise / "check.cu"], check=True)
    rebuild = rebuild_of(exercise)
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


# ---- step 06: shares that are almost right, races that are half mended ----

STEP_06 = ROOT / "steps" / "06_backward" / "exercises"
SHARES, LAST_BLOCK = (STEP_06 / name for name in ("1_fill_in_ds", "2_find_the_race"))


def race_mends(mends):
    """{name: the task with this in place of what it has}."""
    task = (LAST_BLOCK / "task.cuh").read_text()
    branch = "  if (threadIdx.x == 0) {\n"
    assert task.count(branch + faults.COUNT) == 1
    return {name: task.replace(branch + faults.COUNT, before + branch + inside) for name, (before, inside) in mends.items()}


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


# ---- step 07: lists that are almost right, a fault that is half mended, rows that are cut or merged wrongly ----

STEP_07 = ROOT / "steps" / "07_block_sparse" / "exercises"
LIST, LISTS_END, BALANCE = (STEP_07 / name for name in ("1_build_the_list", "2_a_fault_at_a_lists_end", "4_balance_a_bad_mask"))


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
@pytest.mark.parametrize("kernel", faults.BALANCE_FAULTS)
@of(BALANCE)
def test_the_grader_rejects_rows_that_are_cut_or_merged_wrongly_and_says_why(almost_balanced, capsys, folder, kernel):
    rejected(folder, kernel, faults.BALANCE_FAULTS[kernel][0], capsys)


# ---- what a task that is not mended says, and where its fault does not show ----


@pytest.mark.parametrize("seed", ["1", "2", "3"])
@of(*[folder for folder in KERNELS if exercise_of(folder) in faults.TASK_SAYS])
def test_a_task_that_is_not_mended_says_where_to_look_and_fails_nowhere_else(folder, seed):
    skip_if_worked_on(folder)
    build_step(folder.parent.parent.name)
    for flags, said in faults.TASK_SAYS[exercise_of(folder)]:
        done = run_kernel(folder, "task", *flags, "--sim-seed", seed)
        assert done.returncode == (0 if said is None else 1), done.stdout + done.stderr
        assert said is None or re.search(said, done.stderr), done.stderr
