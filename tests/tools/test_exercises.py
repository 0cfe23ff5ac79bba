"""The graders are graded: each must reject the exercise as it is handed out, and accept its solution."""

import functools
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

from tools.learn import grade as grader
from tools.mutate.rebuild import Rebuild

BUILD = ROOT / "build" / "sim"
EXERCISES = sorted(folder for folder in ROOT.glob("steps/*/exercises/*") if folder.is_dir())
KERNELS = [folder for folder in EXERCISES if (folder / "task.cuh").exists()]
PLAIN = [folder for folder in EXERCISES if (folder / "task.cu").exists()]  # plain CUDA: step 00


def name_of(folder):
    """Every test's name has its step's: each step has a ctest entry."""
    return f"{folder.parent.parent.name}-{folder.name}" if isinstance(folder, Path) else None


def of(*folders):
    return pytest.mark.parametrize("folder", folders, ids=name_of)


def executable(folder, kernel):
    return BUILD / "exercises" / f"exercise_{folder.parent.parent.name}_{folder.name}_{kernel}"


@functools.cache
def build_step(step):
    """Builds what every exercise of a step hands out, and its solution: all at once."""
    targets = [executable(folder, which).name for folder in KERNELS + PLAIN if folder.parent.parent.name == step for which in ("task", "solution")]
    if targets:
        build = ["cmake", "--build", BUILD, "--parallel", str(os.cpu_count()), "--target", *targets]
        done = subprocess.run(build, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def grade(folder, *flags):
    build_step(folder.parent.parent.name)
    step = folder.parent.parent.name.split("_")[0]
    number = folder.name.split("_")[0]
    return subprocess.run([sys.executable, ROOT / "tools" / "learn" / "grade.py", step, number, *flags], capture_output=True, text=True, check=False)


def skip_if_worked_on(folder):
    if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", folder], cwd=ROOT, check=False).returncode != 0:
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
    shapes = grader.PLAIN_SIZES[folder.name] if folder in PLAIN else grader.RUNS[folder.parent.parent.name][0]
    assert done.stdout.count("right  ") == len(shapes)


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

PLAIN_FAULTS = {
    ("1_write_a_vector_kernel", "one block"): ("axpy_kernel<<<(n + threads - 1) / threads, threads>>>", "axpy_kernel<<<1, 32>>>", "the grid|must be"),
    ("1_write_a_vector_kernel", "no tail"): ("(n + threads - 1) / threads", "(n / threads > 0 ? n / threads : 1)", r"y\[\d+\] of"),
    ("1_write_a_vector_kernel", "no guard"): ("if (i < n) ", "", "out-of-bounds"),
    ("1_write_a_vector_kernel", "strided"): ("const int i = blockIdx.x * blockDim.x + threadIdx.x;", "const int i = threadIdx.x * gridDim.x + blockIdx.x;", "do neighbouring lanes"),
    ("1_write_a_vector_kernel", "loop"): (
        "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) y[i]",
        "  if (blockIdx.x == 0)\n    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i]",
        None,  # right, and no more sectors: idle blocks are allowed
    ),
    ("2_write_a_row_maximum", "zero"): ("float mine = -INFINITY;", "float mine = 0;", "the maximum of row"),
    ("2_write_a_row_maximum", "no first barrier"): ("  __syncthreads();  // all partial", "  // all partial", "race|uninitialised"),
    ("2_write_a_row_maximum", "one thread"): ("for (int j = thread; j < cols; j += threads)", "for (int j = 0; j < cols; ++j)", "sectors of 32 bytes are read where"),
    ("2_write_a_row_maximum", "stretches"): (
        "for (int j = thread; j < cols; j += threads)",
        "const int part = (cols + threads - 1) / threads;\n  for (int j = thread * part; j < cols && j < (thread + 1) * part; ++j)",
        "sectors of 32 bytes are read where",
    ),
    ("3_a_race_on_device_memory", "lost"): ("atomicAdd(&counts[value], 1)", "counts[value] += 1", "race"),
    ("3_a_race_on_device_memory", "one of four"): ("byte < 4", "byte < 3", "among"),
}


@pytest.mark.long
@pytest.mark.parametrize(("exercise", "fault"), PLAIN_FAULTS)
@of(ROOT / "steps" / "00_first_kernel")
def test_the_grader_rejects_plain_cuda_that_is_not_what_was_asked_for(folder, exercise, fault, tmp_path, capsys):
    right, wrong, reason = PLAIN_FAULTS[exercise, fault]
    exercise = folder / "exercises" / exercise
    build_step(folder.name)
    text = (exercise / "solution.cu").read_text()
    assert text.count(right) == 1
    (tmp_path / "faulty.cu").write_text(text.replace(right, wrong))
    solution, program = executable(exercise, "solution"), executable(exercise, fault.replace(" ", "_"))
    made = program.with_suffix(".cu")
    subprocess.run([sys.executable, ROOT / "cmake" / "plain_cuda.py", made, tmp_path / "faulty.cu", exercise / "check.cu"], check=True)
    rebuild = Rebuild(BUILD, BUILD / "steps" / f"{solution.name}.cu", f"exercises/{solution.name}")
    assert (rebuild.compile(made, program.with_suffix(".o")) or rebuild.link(program.with_suffix(".o"), program)) is None
    passed = grader.grade_plain(program, solution, grader.PLAIN_SIZES[exercise.name])
    said = capsys.readouterr().out
    assert passed == (reason is None), said
    assert reason is None or re.search(reason, said), said


# ---- exercise 4 of step 01: each of its five faults alone ----

FIVE_REPORTS = ROOT / "steps" / "01_naive_mha" / "exercises" / "4_five_reports"
RAGGED = ["--seq-q", "13", "--seq-k", "45", "--dim", "33"]  # where every fault shows


@dataclass
class Fault:
    right: str  # in the solution, once
    wrong: str  # in its place
    kinds: set  # that the simulator reports of this fault alone
    about: str  # in each report
    lines: tuple  # that the reports name, and no others: the first lines that contain these


FAULTS = {
    "overwrite": Fault(
        right="    __syncthreads();  // everyone has read the keys before these overwrite them\n",
        wrong="",
        kinds={"race"},
        about="Smem::k_tile[",
        lines=("smem.k_tile[j][t] = ", "sum += smem.q[row][t]"),
    ),
    "exchange": Fault(
        right="    __syncwarp();  // the row's lanes have written its part of P before they read each other's\n",
        wrong="",
        kinds={"race", "uninitialised read"},
        about="Smem::p[",
        lines=("smem.p[row][j] = p;", "o_sums[n] += "),
    ),
    "off_by_one": Fault(
        right="first + j < shape.seq_k; j += queries) {\n      const float* v_row",
        wrong="first + j <= shape.seq_k; j += queries) {\n      const float* v_row",
        kinds={"out-of-bounds read"},
        about="past the end of 'v'",
        lines=("smem.v_tile[j][t] = ",),
    ),
    "unwritten": Fault(
        right="for (int t = lane; t < columns; t += row_lanes) smem.q",
        wrong="for (int t = lane; t < shape.dim; t += row_lanes) smem.q",
        kinds={"uninitialised read"},
        about="Smem::q[",
        lines=("sum += smem.q[row][t]",),
    ),
    "divergent": Fault(
        right="  row_max = row_reduce(row_max, Maximum{});",
        wrong="  if (i < shape.seq_q) row_max = row_reduce(row_max, Maximum{});",
        kinds={"deadlock"},
        about="warp 2 lanes 16-31 wait in __syncthreads()",  # warp 2 has the last query, and no other
        lines=("__shfl_xor_sync(", "// everyone has read the keys and values"),
    ),
}


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
    solution = (FIVE_REPORTS / "solution.cuh").read_text()
    texts = {name: replaced(solution, fault) for name, fault in FAULTS.items()}
    build_variants(FIVE_REPORTS, texts)
    return texts


@pytest.mark.long
@pytest.mark.parametrize("seed", ["1", "2", "3", "4"])
@pytest.mark.parametrize("name", FAULTS)
@of(FIVE_REPORTS)
def test_each_of_the_five_faults_alone_has_its_report(single_faults, folder, name, seed):
    fault = FAULTS[name]
    done = run_kernel(folder, name, *RAGGED, "--sim-seed", seed)
    assert done.returncode == 1, done.stdout + done.stderr
    reports = re.findall(r"^exercise_01_4: mended: ([a-z -]+): (.*\n(?:  .*\n)+)", done.stderr, re.MULTILINE)
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
    text = (folder / "solution.cuh").read_text()
    for fault in FAULTS.values():
        text = replaced(text, fault)
    task = (folder / "task.cuh").read_text()
    assert code(task) == code(text)
    named = {int(line) for line in re.findall(r"task\.cuh:(\d+)", (folder / "solution.md").read_text())}
    assert named == set.union(*(line_numbers(task, fault) for fault in FAULTS.values()))


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
PLACE = "t ^ row / 2 % 4 * chunk"
LANES = ("lane / 16 * 8 + lane % 8", "lane / 8 % 2 * chunk")


@pytest.fixture(scope="module")
def almost_right_loads():
    solution = (B_LOAD / "solution.cuh").read_text()
    assert all(solution.count(part) == 1 for part in (PLACE, *LANES))
    unswizzled = solution.replace(PLACE, "t").replace("place(int row, int t)", "place(int, int t)")
    texts = {
        "as_a": solution.replace(LANES[0], "lane % 16").replace(LANES[1], "lane / 16 * chunk"),
        "unswizzled": unswizzled,
        "padded": unswizzled.replace("[tile_k]", "[tile_k + chunk]"),
    }
    build_variants(B_LOAD, texts)


@pytest.mark.long
@pytest.mark.parametrize("kernel, reason", [("as_a", r"C: row .*: error"), ("unswizzled", "C is right, but"), ("padded", "C is right, but")])
@of(B_LOAD)
def test_the_grader_rejects_loads_that_are_almost_right_and_says_why(almost_right_loads, capsys, folder, kernel, reason):
    assert not grader.grade_kernel(executable(folder, kernel), *grader.RUNS["02_tiled_gemm"], free_of_conflicts=True)
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
SOFTMAX_FAULTS = {
    "barrier": ("  __syncthreads();  // the states of all warps are written before any warp merges them\n", ""),
    "factors": ("row = merge_states(row, load(&smem.states[w]));", "row = {fmaxf(row.m, load(&smem.states[w]).m), row.l + load(&smem.states[w]).l};"),
    "empty": ("const float subtracted = device::safe_maximum(m);", "const float subtracted = m;"),
}
MERGE_FAULTS = {
    "one_sided": ("a.l * expf(a.m - subtracted)", "a.l"),
    "not_a_number": ("m == -INFINITY ? 0.0f : m;\n", "m;\n"),
}


def with_faults(folder, faults):
    solution = (folder / "solution.cuh").read_text()
    assert all(solution.count(right) == 1 for right, _ in faults.values())
    build_variants(folder, {name: solution.replace(right, wrong) for name, (right, wrong) in faults.items()})


@pytest.fixture(scope="module")
def faulty_softmaxes():
    with_faults(SOFTMAX_FAULT, SOFTMAX_FAULTS)
    with_faults(MERGE, MERGE_FAULTS)


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
@pytest.mark.parametrize("folder, kernel", [(SOFTMAX_FAULT, name) for name in SOFTMAX_FAULTS] + [(MERGE, name) for name in MERGE_FAULTS], ids=name_of)
def test_the_grader_rejects_every_faulty_softmax(faulty_softmaxes, folder, kernel):
    assert not grader.grade_kernel(executable(folder, kernel), *grader.RUNS["03_online_softmax"], free_of_conflicts=False)


# ---- step 06: shares that are almost right, races that are half mended, numbers and names that are wrong ----

STEP_06 = ROOT / "steps" / "06_backward" / "exercises"
SHARES, LAST_BLOCK, BYTES, MYSTERY = (STEP_06 / name for name in ("1_fill_in_ds", "2_find_the_race", "3_predict_bytes", "4_a_mystery"))
SHARES_FAULTS = {  # the first output that is wrong, what is right, what is wrong
    "p_into_dk": ("dK", "return {shape.scale * ds, shape.scale * ds, p}", "return {shape.scale * ds, shape.scale * p, p}"),
    "without_d": ("dQ", "p * (do_v - do_o)", "p * do_v"),
    "scale_twice": ("dK", "shape.scale * ds, shape.scale * ds, p", "shape.scale * ds, shape.scale * shape.scale * ds, p"),
    "dq_without_scale": ("dQ", "return {shape.scale * ds,", "return {ds,"),
    "score_without_scale": ("dQ", "shape.scale * q_k - lse", "q_k - lse"),
    "lse_in_base_2": ("dQ", "expf(shape.scale * q_k - lse)", "exp2f(shape.scale * q_k - lse)"),
    "no_mask": ("d[QK]", "if (j < shape.first_key(i) || j >= shape.end_key(i)) return {0.0f, 0.0f, 0.0f};", "(void)i, (void)j;"),
    "one_key_too_many": ("d[QK]", "j >= shape.end_key(i)", "j > shape.end_key(i)"),
    "no_window": ("d[QK]", "j < shape.first_key(i) || ", ""),
}
COUNT = "    smem.earlier = atomicAdd(&arrived[batch * shape.kv_heads + kv_head], 1);\n"
BARRIER, FENCE = "  __syncthreads();\n", "    __threadfence();\n"
RACE_MENDS = {  # what stands before the branch of thread 0, and inside it
    "barrier_alone": (BARRIER, COUNT),
    "fences_without_barrier": ("", FENCE + COUNT + FENCE),
    "all_fence_without_barrier": ("  __threadfence();\n", COUNT + FENCE),
    "only_the_writer_fences": (BARRIER, FENCE + COUNT),
    "only_the_reader_fences": (BARRIER, COUNT + FENCE),
    "fence_before_the_barrier": ("  if (threadIdx.x == 0) __threadfence();\n" + BARRIER, COUNT + FENCE),
    "another_thread_fences": (BARRIER + "  if (threadIdx.x == 1) __threadfence();\n", COUNT + FENCE),
    "warp_barrier": ("  __syncwarp();\n", FENCE + COUNT + FENCE),
    "fences_of_the_block": (BARRIER, (FENCE + COUNT + FENCE).replace("fence()", "fence_block()")),
    "count_of_the_block": (BARRIER, FENCE + COUNT.replace("atomicAdd(", "atomicAdd_block(") + FENCE),
}


def race_mends(mends):
    """{name: the task with this in place of what it has}."""
    task = (LAST_BLOCK / "task.cuh").read_text()
    branch = "  if (threadIdx.x == 0) {\n"
    assert task.count(branch + COUNT) == 1
    return {name: task.replace(branch + COUNT, before + branch + inside) for name, (before, inside) in mends.items()}


@pytest.fixture(scope="module")
def almost_right_shares():
    with_faults(SHARES, {name: (right, wrong) for name, (_, right, wrong) in SHARES_FAULTS.items()})


@pytest.mark.long
@pytest.mark.parametrize("kernel", SHARES_FAULTS)
@of(SHARES)
def test_the_grader_rejects_shares_that_are_almost_right_and_says_which_gradient(almost_right_shares, capsys, folder, kernel):
    assert not grader.grade_kernel(executable(folder, kernel), *grader.RUNS["06_backward"], free_of_conflicts=False)
    assert re.search(rf"yours: {SHARES_FAULTS[kernel][0]}: row .*: (error|NaN|inf)", capsys.readouterr().out)


@pytest.fixture(scope="module")
def half_mended():
    skip_if_worked_on(LAST_BLOCK)
    build_variants(LAST_BLOCK, race_mends(RACE_MENDS))


@pytest.mark.long
@pytest.mark.parametrize("kernel", RACE_MENDS)
@of(LAST_BLOCK)
def test_the_grader_rejects_half_a_mend_by_its_race(half_mended, capsys, folder, kernel):
    assert not grader.grade_kernel(executable(folder, kernel), *grader.RUNS["06_backward"], free_of_conflicts=False)
    assert re.search(r"race: .* of '(dq_sums|arrived)'", capsys.readouterr().out)


@pytest.mark.long
@of(LAST_BLOCK)
def test_the_grader_accepts_the_other_right_mend(folder):
    skip_if_worked_on(folder)
    # Everyone fences on the far side of the barriers.
    text = race_mends({"all_fence": ("  __threadfence();\n" + BARRIER, COUNT)})["all_fence"]
    after = "  __syncthreads();  // the count is there before anyone reads it\n"
    build_variants(folder, {"all_fence": text.replace(after, after + "  __threadfence();\n")})
    assert grader.grade_kernel(executable(folder, "all_fence"), *grader.RUNS["06_backward"], free_of_conflicts=False)


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
    solution, expected = json.loads((folder / "solution.json").read_text()), grader.EXPECTED["06_backward/3_predict_bytes"]()
    assert grader.grade_numbers(solution, expected)
    wrong = {
        "standard_written_bytes": [2 * 12 * 136 * 184 // 2, 600576 // 2, 600576 / 3],  # one head; fp16; one matrix
        "standard_read_bytes": [5 * 200192, 4 * 200192],  # without the mask; a read of dP left out
        "recompute_added_bytes": [2 * 6 * 136 * 32 * 4],  # without the mask
        "one_kernel_tiles": [18, 8],  # without the mask; one head
        "one_kernel_red": [16 * 32, 16 * 32 * 4],  # of a thread; at dim 64
        "fragment_order_red": [1024],
        "keys_32_added_bytes": [16 * 64 * 32 * 4, 12 * 64 * 32 * 4],  # tiles of 64 keys; without the mask
        "two_kernels_mma": [16 * 4 * 80, 7168 / 4],  # five products; one warp
    }
    assert wrong.keys() == expected.keys()
    for name, answers in wrong.items():
        for answer in [*answers, 0, None, "many", -expected[name], expected[name] + 1]:
            capsys.readouterr()
            assert not grader.grade_numbers({**solution, name: answer}, expected), (name, answer)
            assert capsys.readouterr().out.count("wrong  ") == 1


@of(MYSTERY)
def test_the_grader_rejects_every_other_name_says_why_and_does_not_give_the_answer(folder, capsys):
    solution = json.loads((folder / "solution.json").read_text())
    assert grader.grade_mysteries(solution)
    lists = {"kernel": list(grader.mysteries()[1]), "bound": grader.BOUNDS, "change": list(grader.CHANGES)}
    for question, right in solution.items():
        choices = lists[question.split("_")[1]]
        assert right in choices
        for wrong in [name for name in choices if name != right] + ["", "nothing", 7, ["list"]]:
            capsys.readouterr()
            assert not grader.grade_mysteries({**solution, question: wrong})
            (line,) = re.findall(r"^wrong  .*$", capsys.readouterr().out, re.MULTILINE)
            assert line.startswith(f"wrong  {question}: {wrong}")
            assert (re.search(r"  \(.{12,}\)$", line) is not None) == (wrong != "")
            assert not re.search(rf"\b{right}\b", line.replace(str(wrong), "")), line


@of(MYSTERY)
def test_the_digests_of_the_mystery_name_no_kernel(folder, capsys):
    found, known = grader.mysteries()
    grader.show_mysteries(found, known)
    table = capsys.readouterr().out.split("_kernel is one of")[0]
    assert not [name for name in [*known, *grader.CHANGES, "What bounds"] if name in table]
    assert all(row in table for row in ("time", "DRAM read", "shared wavefronts", "stalls"))


@of(MYSTERY)
def test_each_change_of_the_mystery_removes_what_bounds_its_kernel(folder):
    """By the same committed counts: of the rung that makes the change, and of the one before."""
    known = grader.mysteries()[1]
    moved = lambda *names: sum(known[name].sum("dram__bytes_read.sum", "dram__bytes_write.sum") for name in names)
    wavefronts = lambda *names: sum(known[name].get("memory_l1_wavefronts_shared") for name in names)
    assert moved("backward_recompute") < 0.1 * moved("row_softmax_gradient")  # on_chip
    assert wavefronts("gradient_of_keys", "gradient_of_queries") < 0.1 * wavefronts("backward_recompute")  # tensor_cores
    assert wavefronts("backward_tuned_128") < 0.6 * wavefronts("backward_pipeline")  # larger_tiles


# ---- step 07: lists that are almost right, a fault that is half mended, wrong numbers, rows that are cut or merged wrongly ----

STEP_07 = ROOT / "steps" / "07_block_sparse" / "exercises"
LIST, LISTS_END, TIME, BALANCE = (STEP_07 / name for name in ("1_build_the_list", "2_a_fault_at_a_lists_end", "3_predict_time", "4_balance_a_bad_mask"))
LIST_FAULTS = {  # what the grader says, what is right, what is wrong
    "first_tile_first": ("its tiles are", "__popc(full_lanes & before)", "__popc(full_lanes & ~before) - 1"),
    "lanes_up_to_this": ("its tiles are|race: |out-of-bounds write: ", "(1u << lane) - 1;", "(2u << lane) - 1;"),
    "forgets_earlier_rounds": ("right, full and left are", "full_before |= full_lanes != 0;", "full_before = false;"),
    "all_partial_ones_right": ("right, full and left are", "full_before ? 0 : partial_lanes & up_to_full", "(void(up_to_full), partial_lanes)"),
    "lane_0_alone": ("right, full and left are", "list.full += __popc(full_lanes);", "list.full += full_lanes & 1;"),
    "partial_as_full": ("right, full and left are", "__ballot_sync(all_lanes, state == full)", "__ballot_sync(all_lanes, state != dead)"),
    "another_heads_mask": ("right, full and left are", "head / shape.heads, head % shape.heads,", "head / shape.heads, 0,"),
    "rows_at_one_place": ("race: .* of 'tiles'", "TileList list{row * most,", "TileList list{0,"),
    "rows_that_are_not": ("out-of-bounds write: .* of 'lists'", "  if (row >= sizes.rows) return;\n", ""),
}
COPY, MORE, AFTER = "at + 2);", "next >= 0,", "next = a.tile_after();"
COPY_OF_THE_LIST, COPY_LEFT_OUT = "at + 2, left > 2 ? 4 : 0);", ("if (threadIdx.x == 0) ptx::", "if (threadIdx.x == 0 && left > 2) ptx::")
WALK_MENDS = {  # what the grader says, what stands for what
    "use_alone": ("out-of-bounds read: .* of 'tiles'", [(MORE, "left > 1,")]),
    "size_0_alone": ("not for the least work", [(COPY, COPY_OF_THE_LIST)]),
    "stays_inside": ("not for the least work", [(COPY, "at + min(2, left - 1));")]),
    "one_too_far": ("(out-of-bounds|uninitialised) read: .* of 'tiles'", [(COPY, "at + 2, left > 1 ? 4 : 0);"), (MORE, "left > 1,")]),
    "one_too_few": ("O: row", [(COPY, "at + 2, left > 3 ? 4 : 0);"), (MORE, "left > 1,")]),
    "none_at_the_end": ("O: row", [(COPY, COPY_OF_THE_LIST), (MORE, "left > 2,")]),
    "an_old_index": ("uninitialised read: .*after|not for the least work", [COPY_LEFT_OUT]),
}
RIGHT_MENDS = {
    "guarded": [(COPY, COPY_OF_THE_LIST), (AFTER, "next = left > 1 ? a.tile_after() : -1;")],
    "left_out": [COPY_LEFT_OUT, (AFTER, "next = left > 1 ? a.tile_after() : -1;")],
}
BALANCE_FAULTS = {
    "never": ("a block visits .* times the mean", "return max(1, device::ceil_div(count, limit));", "return limit > 0 && count > 0 ? 1 : 1;"),
    "rounded_down": ("a block visits .* times the mean", "max(1, device::ceil_div(count, limit))", "max(1, count / limit)"),
    "limit_rounded_down": ("fewer would do", "max(1, device::ceil_div(4 * tiles, rows))", "max(1, 4 * tiles / rows)"),
    "limit_of_the_mean": ("no balance needs more than", "device::ceil_div(4 * tiles, rows)", "device::ceil_div(tiles, rows)"),
    "always_two": ("no balance needs more than", "max(1, device::ceil_div(count, limit))", "(void(limit), void(count), 2)"),
    "no_part": ("a row has 0 parts", "max(1, device::ceil_div(count, limit))", "device::ceil_div(count, limit)"),
    "first_part_alone": ("O: row", "p < parts;", "p < min(parts, 1);"),
    "o_without_factors": ("O: row", "sum = merged.first * sum + merged.second * o[p * o_stride];", "sum += o[p * o_stride];"),
    "l_without_factors": ("O: row", "row = merged.state;", "row = {merged.state.m, row.l + part.y};"),
    "divided_early": ("O: row", "merged.second * o[p * o_stride]", "merged.second * o[p * o_stride] * device::inverse_sum(part.y)"),
    "rows_of_nothing": ("element 0 is nan where no key is seen", "device::inverse_sum(row.l)", "1.0f / row.l"),
    "base_2": ("LSE: row", "device::log_sum_exp(row)", "row.m + log2f(row.l)"),
}


@pytest.fixture(scope="module")
def almost_right_lists():
    with_faults(LIST, {name: (right, wrong) for name, (_, right, wrong) in LIST_FAULTS.items()})


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

    half = {name: mends for name, (_, mends) in WALK_MENDS.items()}
    build_variants(LISTS_END, {name: mended(mends) for name, mends in (half | RIGHT_MENDS).items()})


@pytest.fixture(scope="module")
def almost_balanced():
    with_faults(BALANCE, {name: (right, wrong) for name, (_, right, wrong) in BALANCE_FAULTS.items()})


def rejected(folder, kernel, reason, capsys, solution=None):
    capsys.readouterr()
    assert not grader.grade_kernel(executable(folder, kernel), *grader.RUNS["07_block_sparse"], free_of_conflicts=False, solution=solution)
    assert re.search(reason, said := capsys.readouterr().out), said


@pytest.mark.long
@pytest.mark.parametrize("kernel", LIST_FAULTS)
@of(LIST)
def test_the_grader_rejects_lists_that_are_almost_right_and_says_where(almost_right_lists, capsys, folder, kernel):
    rejected(folder, kernel, LIST_FAULTS[kernel][0], capsys)


@pytest.mark.long
@pytest.mark.parametrize("kernel", WALK_MENDS)
@of(LISTS_END)
def test_the_grader_rejects_half_a_mend_by_its_report_or_by_what_it_copies(half_mended_walks, capsys, folder, kernel):
    rejected(folder, kernel, WALK_MENDS[kernel][0], capsys, executable(folder, "solution"))


@pytest.mark.long
@pytest.mark.parametrize("kernel", RIGHT_MENDS)
@of(LISTS_END)
def test_the_grader_accepts_the_other_right_mends(half_mended_walks, folder, kernel):
    solution = executable(folder, "solution")
    assert grader.grade_kernel(executable(folder, kernel), *grader.RUNS["07_block_sparse"], free_of_conflicts=False, solution=solution)


@pytest.mark.parametrize("seed", ["1", "2", "3"])
@of(LISTS_END)
def test_the_simulator_names_the_copy_of_the_index_and_the_results_are_right(folder, seed, tmp_path):
    skip_if_worked_on(folder)
    build_step(folder.parent.parent.name)
    done = run_kernel(folder, "task", "--sim-seed", seed, "--json", tmp_path / "report.json")
    assert done.returncode == 1
    report = re.search(r"out-of-bounds read: read of 4 bytes, \d bytes past the end of 'tiles'.*\n.*\n.*?task\.cuh:(\d+)", done.stderr)
    assert report, done.stderr
    assert COPY in (folder / "task.cuh").read_text().splitlines()[int(report[1]) - 1]
    (result,) = json.loads((tmp_path / "report.json").read_text())["results"]
    assert all(tensor["pass"] for tensor in result["verdict"]["tensors"])


@pytest.mark.long
@of(TIME)
def test_the_grader_rejects_tiles_that_forget_something(folder, capsys):
    solution, expected = json.loads((folder / "solution.json").read_text()), grader.EXPECTED["07_block_sparse/3_predict_time"]()
    assert grader.grade_numbers(solution, expected)
    wrong = {
        "band_tiles": [20, 7, 13],  # not causal; blocks; the last row's second tile left out
        "sink_tiles": [24, 9],
        "tokens_tiles": [12, 8, 20],  # as one query sees them; blocks; all
        "dense_tiles": [32, 10],
        "mma": [34816 // 4, 34816 // 2, 80 * 512],  # one warp; 16 rows a warp; all dense
        "list_bytes": [4 * 68, 4 * 68 + 16 * 4, 68 + 16 * 16],  # without rows; of one head; bytes
        "p": [68 / 128, 68, 0.5],  # of a launch that is not causal
        "saves_least_of_197": ["band", "sink", "causal", "Tokens", 0],
        "its_p": [0.43, 0.75, 1],  # pairs; the others
    }
    assert wrong.keys() == expected.keys()
    for name, answers in wrong.items():
        for answer in [*answers, None, "many", -1, ["tokens"]]:
            capsys.readouterr()
            assert not grader.grade_numbers({**solution, name: answer}, expected), (name, answer)
            (line,) = re.findall(r"^wrong  .*$", capsys.readouterr().out, re.MULTILINE)
            assert name != "saves_least_of_197" or line == f"wrong  {name}: {answer}"  # no hint


@pytest.mark.long
@pytest.mark.parametrize("kernel", BALANCE_FAULTS)
@of(BALANCE)
def test_the_grader_rejects_rows_that_are_cut_or_merged_wrongly_and_says_why(almost_balanced, capsys, folder, kernel):
    rejected(folder, kernel, BALANCE_FAULTS[kernel][0], capsys)
