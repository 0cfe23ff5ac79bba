"""Grades an exercise: tools/learn/grade.py 01 2 builds and runs what you wrote; --solution grades ours instead.

An exercise is a folder steps/NN_name/exercises/N_name. With an answers.json it asks for numbers, which are compared with what the
step's executable predicts, the simulator counts, or the machine's description says; or for names out of a list, which are compared with
what Nsight Compute counted on a GPU (results/). With a task.cuh it asks for a kernel, which must pass the checker and the
simulator at every shape below and under several schedules; for some the counters are looked at, too. With a task.cu it asks for plain
CUDA (step 00), whose sectors, blocks and barriers are counted. Exit status 0: passed.
"""

import argparse
import functools
import json
import math
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tools.measure.profiling import bounds, digest, ncu
from tools.measure.profiling.launch import ROWS, cell
from tools.measure.profiling.machine import machine

BUILD = ROOT / "build" / "sim"
MEASURED_BANDWIDTH = 4.25e12  # bytes/s of a copy on an H200, read plus written
SCHEDULERS = 4  # of a multiprocessor
MMA_CYCLES = 6.1  # of a scheduler, for an m16n8k16: docs/ceilings.md

# What a kernel must pass, by its step: shapes, and schedules of each.
ATTENTION_SHAPES = [
    [],
    ["--seq-q", "1", "--seq-k", "3", "--dim", "1"],
    ["--seq-q", "97", "--seq-k", "203", "--dim", "40", "--causal"],
    ["--seq-q", "40", "--seq-k", "17", "--dim", "64", "--causal"],
    ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "33", "--seq-k", "300", "--dim", "33"],
]
GEMM_SHAPES = [
    ["--m", "128", "--n", "128", "--k", "64"],
    [],
    ["--m", "1", "--n", "1", "--k", "8"],
    ["--m", "130", "--n", "200", "--k", "136"],
    ["--m", "40", "--n", "265", "--k", "456", "--ldb", "464", "--ldc", "267"],
    ["--batch", "2", "--batch-a", "1", "--m", "97", "--n", "33", "--k", "320"],
]
SOFTMAX_SHAPES = [
    [],
    ["--rows", "3", "--cols", "1"],
    ["--rows", "5", "--cols", "37"],
    ["--rows", "7", "--cols", "1003", "--ldx", "1007", "--ldy", "1005"],
    ["--rows", "2", "--cols", "20000"],
]
FLASH_SHAPES = [
    [],
    ["--causal"],
    ["--seq-q", "97", "--seq-k", "203", "--causal"],
    ["--seq-q", "200", "--seq-k", "70", "--causal"],
    ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "5", "--seq-k", "300"],
    ["--seq-q", "130", "--seq-k", "300", "--window", "180"],
    ["--seq-q", "150", "--window", "40", "--causal"],
]
BACKWARD_SHAPES = [
    [],
    ["--causal"],
    ["--seq-q", "1", "--seq-k", "3", "--dim", "1"],
    ["--heads", "4", "--kv-heads", "2", "--seq-q", "29", "--seq-k", "53", "--dim", "33", "--causal"],
    ["--seq-q", "40", "--seq-k", "17", "--dim", "64", "--causal"],
    ["--batch", "2", "--seq-q", "30", "--seq-k", "41", "--window", "9", "--scale", "0.7"],
]
SPARSE_SHAPES = [
    [],
    ["--seq-q", "300", "--causal", "--pattern", "band:2", "--block-k", "64"],
    ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "150", "--seq-k", "270", "--pattern", "random:0.4,dense,sink:1+local:1,empty", "--block-k", "64"],
    ["--seq-q", "97", "--seq-k", "203", "--causal", "--pattern", "sink:3t+local:70t,dense"],
    ["--heads", "7", "--seq-q", "70", "--seq-k", "330", "--pattern", "dense,empty,empty,empty,empty,empty,empty"],
    ["--heads", "1", "--seq-q", "256", "--seq-k", "2304", "--causal", "--window", "2049"],  # the 33rd tile of a row, and the last, are partial
    ["--heads", "1", "--seq-q", "2048", "--pattern", "full-row:0.05"],
]
SEEDS = [["--sim-seed", seed] for seed in ("1", "2", "3")]
COMPLETIONS = [["--sim-async", mode, *seed] for mode, seed in zip(("late", "eager", "random"), SEEDS)]
RUNS = {"01_naive_mha": (ATTENTION_SHAPES, SEEDS), "03_online_softmax": (SOFTMAX_SHAPES, SEEDS), "04_flash_v1": (ATTENTION_SHAPES, SEEDS), "02_tiled_gemm": (GEMM_SHAPES, COMPLETIONS), "05_flash_v2": (FLASH_SHAPES, COMPLETIONS), "06_backward": (BACKWARD_SHAPES, SEEDS), "07_block_sparse": (SPARSE_SHAPES, COMPLETIONS)}
PLAIN_SIZES = {  # of plain CUDA: what the exercise's check takes
    "1_write_a_vector_kernel": [["1000"], ["1"], ["128"], ["100003"]],
    "2_write_a_row_maximum": [["7", "300"], ["1", "1"], ["3", "128"], ["40", "1003"]],
    "3_a_race_on_device_memory": [["1000"], ["1"], ["128"], ["20011"]],
}
FREE_OF_CONFLICTS = {"02_tiled_gemm/3_write_the_b_load"}  # of these, shared memory may serve no wavefront more than it must
NO_MORE_WORK = {"05_flash_v2/3_write_the_peeling", "07_block_sparse/2_a_fault_at_a_lists_end"}  # and these may count nothing that the solution does not


def results_of(*command):
    """Runs a step's or an exercise's executable; returns what its --json says: {variant: result}."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        done = subprocess.run([*map(str, command), "--json", report], check=False, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{done.stdout}{done.stderr}")
        return {result["variant"]: result for result in json.loads(report.read_text())["results"]}


def counters_of(*command):
    """{variant: its exact counters, the sums over its kernels}."""
    sums = {}
    for variant, result in results_of(*command, "--counters").items():
        sums[variant] = Counter()
        for kernel in result["counters"]:
            sums[variant].update(kernel["exact"])
    return sums


def computed_roofs():
    """What exercise 4 of step 00 asks for, from the description of an H200: the rates that its clock allows, and what follows from two
    that were measured."""
    h200 = json.loads((ROOT / "docs" / "machine" / "h200.json").read_text())
    clock = h200["sm_clock_mhz"] * 1e6
    copy, mma = (h200["ceilings"][f"{name}_per_second"]["value"] for name in ("copy_bytes", "mma_sync_flops"))
    instructions = h200["multiprocessors"] * SCHEDULERS * clock  # of warps, in a second
    return {
        "fma_tflops": instructions * 32 * 2 / 1e12,
        "mma_tflops": instructions / MMA_CYCLES * 2 * 16 * 8 * 16 / 1e12,
        "bytes_under_way": copy * h200["latency_cycles"]["hbm"] / clock,
        "ridge_flop_per_byte": mma / copy,
        "transpose_microseconds": 2 * 4096 * 4096 * 2 / copy * 1e6,
    }


def predicted_bytes():
    """What exercise 1 of step 01 asks for, computed from the executable's own prediction for the tour's shape."""
    shape = ["--heads", "12", "--seq-q", "207", "--dim", "32"]
    (result,) = results_of(BUILD / "bin" / "01_naive_mha", "--variant", "row_per_thread", *shape, "--no-check").values()
    scores, softmax, pv = result["kernels"]
    moved = [kernel["bytes_read"] + kernel["bytes_written"] for kernel in (scores, softmax, pv)]
    return {
        "S_bytes": scores["bytes_written"],
        "scores_flops": scores["flops"],
        "softmax_bytes": moved[1],
        "all_kernels_bytes": sum(moved),
        "floor_microseconds": sum(moved) / MEASURED_BANDWIDTH * 1e6,
    }


def counted_conflicts():
    """What exercise 1 of step 02 asks for: wavefronts of one ldmatrix.x4, and two numbers of the step's own kernels."""
    wavefronts = "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldsm.sum"
    conflicts = "sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum"
    rows = counters_of(BUILD / "exercises" / "exercise_02_tiled_gemm_1_predict_conflicts", "--variant", "all")
    asked = [f"stride_{stride}" for stride in (64, 80, 96, 128, 144, 192, 256, 272)] + ["swizzled_64", "swizzled_128"]
    kernels = {}
    for variant in ("tensor_cores", "swizzle"):
        kernels |= counters_of(BUILD / "bin" / "02_tiled_gemm", "--variant", variant)
    return {
        **{name: rows[name][wavefronts] / rows[name]["smsp__sass_inst_executed_op_ldsm.sum"] for name in asked},
        "tensor_cores_conflicts": kernels["tensor_cores"][conflicts],
        "swizzle_wavefronts": kernels["swizzle"][wavefronts],
    }


def requested_bytes():
    """What exercise 1 of step 04 asks for: of Algorithm 1 in two sizes of shared memory, counted; and by how much the paper's blocks
    miss the budget at d = 128."""
    n, d = 320, 64
    numbers = {}
    for name, variant in (("48k", "scalar_48k"), ("227k", "scalar")):
        shape = ["--variant", variant, "--heads", "1", "--seq-q", str(n), "--dim", str(d), "--dtype", "fp16", "--no-check", "--counters"]
        (result,) = results_of(BUILD / "bin" / "04_flash_v1", *shape).values()
        exact = result["counters"][1]["exact"]
        load, store = (32 * exact[f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum"] for op in ("ld", "st"))
        numbers |= {f"passes_{name}": store // (n * (4 * d + 8)), f"bytes_{name}": load + store}  # a pass stores O, l and m once
    words, block = 227 * 1024 // 4, math.ceil(227 * 1024 // 4 / (4 * 128))
    return numbers | {"words_beyond_the_budget": 4 * block * 128 + block * block - words}


def predicted_transfers():
    """What exercise 1 of step 03 asks for: bytes as the executable predicts them, sectors of a load as the simulator counts them, and a
    merge by hand."""
    step = BUILD / "bin" / "03_online_softmax"
    large = results_of(step, "--variant", "all", "--rows", "64", "--cols", "4096", "--no-check")
    moved = {
        variant: 256 * sum(kernel["bytes_read"] + kernel["bytes_written"] for kernel in result["kernels"])  # 16384 rows are 256 × 64
        for variant, result in large.items()
    }
    counted = results_of(step, "--variant", "all", "--rows", "64", "--cols", "1024", "--no-check", "--counters")
    sectors = {}
    for variant in ("three_pass", "warp_per_row", "vectorised"):
        (kernel,) = counted[variant]["counters"]
        requests, touched = (kernel["exact"][f"l1tex__t_{what}_pipe_lsu_mem_global_op_ld.sum"] for what in ("requests", "sectors"))
        sectors[f"{variant}_sectors"] = touched / requests
    return {
        **{f"{variant}_bytes": moved[variant] for variant in ("three_pass", "online", "vectorised")},
        "vectorised_microseconds": moved["vectorised"] / MEASURED_BANDWIDTH * 1e6,
        **sectors,
        "merged_m": 5,
        "merged_l": 2 + math.exp(3 - 5) * (math.exp(-2) + math.exp(-1) + 1),
    }


def counted_tiles():
    """What exercise 1 of step 05 asks for, of one head with 256 queries and keys and rows of 64 elements."""
    shape = ["--heads", "1", "--seq-q", "256", "--dim", "64", "--no-check"]

    def counted(variant, *mask):
        (counters,) = counters_of(BUILD / "bin" / "05_flash_v2", "--variant", variant, *shape, *mask).values()
        return counters

    pipeline, registers = counted("pipeline"), counted("registers")
    mma = "sm__inst_executed_pipe_tensor_op_hmma.sum"
    return {
        "copied_bytes": 32 * pipeline["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"],
        "ldmatrix_file_4": pipeline["smsp__sass_inst_executed_op_ldsm.sum"],
        "ldmatrix_file_5": registers["smsp__sass_inst_executed_op_ldsm.sum"],
        "mma": registers[mma],
        "causal_mma": counted("registers", "--causal")[mma],
        "causal_window_64_mma": counted("registers", "--causal", "--window", "64")[mma],
        "barriers_file_5": registers["sass__inst_executed_per_opcode.BAR"],
    }


def backward_traffic():
    """What exercise 3 of step 06 asks for, of a causal shape with grouped heads and ragged lengths."""
    shape = ["--heads", "2", "--kv-heads", "1", "--seq-q", "136", "--seq-k", "184", "--dim", "32", "--dtype", "fp16", "--causal", "--no-check"]

    def counted(variant, *kernels):
        """The counters of these kernels, in launch order."""
        (result,) = results_of(BUILD / "bin" / "06_backward", "--variant", variant, *shape, "--counters").values()
        return [kernel for kernel in result["counters"] if ncu.base_name(kernel["kernel"]) in kernels]

    def total(kernels, metric):
        return sum(kernel["exact"][metric] for kernel in kernels)

    red, red_sectors = "smsp__sass_inst_executed_op_global_red.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum"
    writers, readers = ("probabilities", "row_products", "row_softmax_gradient"), ("over_queries", "over_keys")
    standard = counted("standard", *writers, *readers)
    written = 32 * total(standard[:3], "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum")
    # The three kernels behind them read P or dS by a warp an element, which all lanes share. No other load has 4 bytes.
    loads = [line for kernel in standard[3:] for line in kernel["lines"] if (line["space"], line["op"], line["bytes"]) == ("global", "load", 4)]
    recompute, one_kernel = counted("recompute", "backward_recompute"), counted("one_kernel", "backward_one_kernel")
    return {
        "standard_written_bytes": written,
        "standard_read_bytes": written * 2 // 3 + 4 * sum(line["requests"] for line in loads),  # row_softmax_gradient reads all of P and dP
        "recompute_added_bytes": 32 * total(recompute, red_sectors),
        "one_kernel_tiles": total(one_kernel, "sass__inst_executed_per_opcode.BAR") // (3 * 4),  # of each: three barriers, four warps
        "one_kernel_red": total(one_kernel, red),
        "fragment_order_red": total(counted("fragment_order", "backward_one_kernel"), red),
        "keys_32_added_bytes": 32 * total(counted("keys_32", "backward_keys_32"), red_sectors),
        "two_kernels_mma": total(counted("two_kernels", "gradient_of_keys", "gradient_of_queries"), "sm__inst_executed_pipe_tensor_op_hmma.sum"),
    }


def visited_tiles():
    """What exercise 3 of step 07 asks for: tiles by the mma that multiply them, of masks one by one."""
    mma = "sm__inst_executed_pipe_tensor_op_hmma.sum"

    def counted(queries, *mask):
        shape = ["--variant", "tokens", "--heads", "1", "--seq-q", str(queries), "--dim", "64", "--no-check", *mask]
        (result,) = results_of(BUILD / "bin" / "07_block_sparse", *shape, "--counters").values()
        return result["counters"][-1]["exact"]

    of_tile = counted(128, "--seq-k", "64")[mma]
    masks = {"band": "band:2", "sink": "sink:1+local:2", "tokens": "sink:50t+local:100t", "dense": "dense"}
    heads = {name: counted(512, "--causal", "--pattern", mask) for name, mask in masks.items()}
    tiles = {f"{name}_tiles": head[mma] // of_tile for name, head in heads.items()}
    all_tiles, rows = sum(tiles.values()), sum(head["launch__grid_size"] for head in heads.values())  # a block has a row
    short = {"band": ["band:1"], "sink": ["sink:1+local:1"], "tokens": ["sink:32t+local:32t"], "causal": ["dense", "--causal"]}
    all_live = counted(197)[mma]
    p = {name: counted(197, "--pattern", *mask)[mma] / all_live for name, mask in short.items()}
    least = max(p, key=p.get)
    return {
        **tiles,
        "mma": all_tiles * of_tile,
        "list_bytes": 4 * all_tiles + 16 * rows,
        "p": all_tiles / (len(masks) * tiles["dense_tiles"]),
        "saves_least_of_197": least,
        "its_p": p[least],
    }


EXPECTED = {
    "00_first_kernel/4_predict_the_roofs": computed_roofs,
    "01_naive_mha/1_predict_bytes": predicted_bytes,
    "02_tiled_gemm/1_predict_conflicts": counted_conflicts,
    "05_flash_v2/1_predict_counts": counted_tiles,
    "03_online_softmax/1_predict_transfers": predicted_transfers,
    "04_flash_v1/1_predict_bytes": requested_bytes,
    "06_backward/3_predict_bytes": backward_traffic,
    "07_block_sparse/3_predict_time": visited_tiles,
}


def grade_numbers(answers, expected_numbers):
    """Compares each answer; prints one line each, with a hint instead of the right number."""
    right = True
    for name, expected in expected_numbers.items():
        answer = answers.get(name)
        if isinstance(expected, str):  # a name
            ok, hint = answer == expected, ""
        else:
            tolerance = 0 if expected == round(expected) else 0.02  # counts must be exact, rates and times need not
            ok = isinstance(answer, (int, float)) and math.isclose(answer, expected, rel_tol=tolerance, abs_tol=0)
            hint = "" if ok or not isinstance(answer, (int, float)) or not answer else f"  ({answer / expected:.3g} times the right number)"
        print(f"{'right' if ok else 'wrong'}  {name}: {answer}{hint}")
        right &= ok
    return right


# ---- exercise 4 of step 06: names out of a list ----

MYSTERY = "06_backward/4_a_mystery"
BOUNDS = [
    "DRAM bandwidth", "L2 bandwidth", "L1 sectors", "L1 requests", "shared-memory bandwidth", "shared-memory banks", "issue slots", "tensor pipe",
    "fp32 pipe", "latency",
]  # fmt: skip
# What a change does, and where a digest shows whether that is what the kernel lacks.
CHANGES = {
    "on_chip": ("keep the matrices of pairs on the chip", "it saves bytes of DRAM: compare DRAM read and written with the floor and the time"),
    "tensor_cores": ("multiply by mma.sync", "it pays where lanes multiply one by one: compare the tensor pipe with operations and time"),
    "larger_tiles": ("give a warp more keys, so that a fragment feeds more mma", "it saves ldmatrix: compare shared wavefronts with tensor instructions"),
    "next_tile": ("copy the next tile while this one is multiplied", "it pays where nothing is busy, because warps wait for copies"),
    "padding": ("pad the rows in shared memory", "it saves bank conflicts: are they many beside the shared wavefronts?"),
    "wide_loads": ("load 16 bytes a lane from global memory", "it saves requests and instructions: are these busy?"),
}


@functools.cache
def mysteries():
    """{letter: (what Nsight Compute counted on an H200 of one kernel of step 06, the change)}, and {kernel: launch} of all that it may be."""
    chosen = {"A": ("backward_pipeline", "larger_tiles"), "B": ("row_softmax_gradient", "on_chip"), "C": ("backward_recompute", "tensor_cores")}
    known = {}
    for launch in digest.committed(ROOT, "h200", "06_backward").get("4k-d128", []):
        known.setdefault(launch.kernel, launch)
    if missing := [kernel for kernel, _ in chosen.values() if kernel not in known]:
        sys.exit(f"results/h200/ncu_06_backward.csv has no launch of {', '.join(missing)} at 4k-d128, of which this exercise asks")
    return {letter: (known[kernel], change) for letter, (kernel, change) in chosen.items()}, known


def show_mysteries(found, known):
    h200 = machine(ROOT)
    rows = [[row.name, *(cell(row, launch, h200) for launch, _ in found.values())] for row in ROWS]
    print("16 heads, 4096 queries and keys, head dim 128, fp16, on an H200:\n")
    print("\n".join(digest.aligned([["", *found], *(row for row in rows if set(row[1:]) != {"-"})])))
    print(f"\n_kernel is one of: {', '.join(known)}\n_bound:  {', '.join(BOUNDS)}\n_change, what should come next:")
    print("".join(f"  {name}: {what}\n" for name, (what, _) in CHANGES.items()))


def why_not(launch, question, answer, known):
    """What in the counts of a launch speaks against an answer."""
    h200 = machine(ROOT)
    if question == "kernel" and answer in known:
        # The count in which the two differ most.
        names = ("blocks", "barriers", "shuffles", "shared wavefronts", "tensor instructions", "operations", "DRAM read", "instructions")
        rows = [(row, row.value(known[answer], h200) or 0, row.value(launch, h200) or 0) for row in ROWS if row.name in names]
        row, theirs, ours = max(rows, key=lambda values: abs(math.log((values[1] + 1) / (values[2] + 1))))
        return f"{answer} has {row.name}: {row.text(theirs)}; this one {row.text(ours)}"
    if question == "bound" and answer in BOUNDS:
        busy = {need.unit: 100 * need.seconds / launch.seconds for need in bounds.needs(launch, h200)}
        if answer == "latency":
            return f"not latency: some unit is busy for {max(busy.values()):.0f} % of the time"
        unit = bounds.L1 if answer.startswith(("L1", "shared-memory")) else answer
        if unit == bounds.verdict(launch, h200).unit:
            return "the right pipe, the wrong work: compare the bytes between warps and L1, 128 a cycle, with shared wavefronts and bank conflicts"
        return f"{unit}: busy for {busy.get(unit, 0):.0f} % of the time"
    if question == "change" and answer in CHANGES:
        return CHANGES[answer][1]
    return "not one of the list"


def grade_mysteries(answers):
    """Shows the digests, and compares each answer; prints one line each, with what speaks against a wrong one."""
    found, known = mysteries()
    show_mysteries(found, known)
    right = any(answers.values())
    for letter, (launch, change) in found.items():
        verdict = bounds.verdict(launch, machine(ROOT)).text
        expected = {"kernel": launch.kernel, "bound": next(name for name in BOUNDS if verdict.startswith(name)), "change": change}
        for question, name in expected.items():
            answer = str(answers.get(f"{letter}_{question}", ""))
            ok = answer == name
            why = "" if ok or not answer else f"  ({why_not(launch, question, answer, known)})"
            print(f"{'right' if ok else 'wrong'}  {letter}_{question}: {answer}{why}")
            right &= ok
    return right


def grade_kernel(binary, shapes, schedules, free_of_conflicts, solution=None):
    """Runs the kernel at every shape under every schedule; stops at the first that fails and shows why. With a solution, nothing may be
    counted of the kernel that is not of the solution."""

    def wrong(flags, why):
        print(f"wrong  {why}\nRun it yourself: {' '.join([str(binary.relative_to(ROOT)), *flags])}")
        return False

    for shape in shapes:
        for schedule in schedules:
            flags = [*shape, *schedule]
            try:
                done = subprocess.run([str(binary), *flags], check=False, cwd=ROOT, capture_output=True, text=True, timeout=120)
            except subprocess.TimeoutExpired:
                return wrong(flags, "it did not end within two minutes")
            if done.returncode != 0:
                return wrong(flags, f"{' '.join(flags)}\n\n{done.stdout}{done.stderr}")
        shown = " ".join(shape) or "default shape"
        if free_of_conflicts:
            (counters,) = counters_of(binary, *shape).values()
            wavefronts, ideal = counters["memory_l1_wavefronts_shared"], counters["memory_l1_wavefronts_shared_ideal"]
            if wavefronts != ideal:
                why = f"{shown}: C is right, but shared memory takes {wavefronts} wavefronts where {ideal} could do; --counters shows which lines"
                return wrong([*shape, "--counters"], why)
        if solution:
            (counters,), (least,) = counters_of(binary, *shape).values(), counters_of(solution, *shape).values()
            more = [f"{name} {count} where {least[name]} would do" for name, count in counters.items() if count > least[name]]
            if more:
                return wrong([*shape, "--counters"], f"{shown}: O is right, but not for the least work: {', '.join(more)}")
        print(f"right  {shown}, {len(schedules)} schedules{', no bank conflicts' if free_of_conflicts else ''}")
    return True


def run_plain(program, size, seed):
    """(result of a program of plain CUDA, counters of its launches)."""
    with tempfile.TemporaryDirectory() as folder:
        counters = Path(folder) / "counters.json"
        environment = os.environ | {"SIM_SEED": str(seed), "SIM_COUNTERS": str(counters)}
        done = subprocess.run([program, *size], check=False, cwd=ROOT, capture_output=True, text=True, timeout=120, env=environment)
        return done, json.loads(counters.read_text()) if counters.exists() else []


def why_not_plain(launches, of_solution):
    """What the launches do that the solution's need not, or do not do at all; None if all is well."""
    if not launches:
        return "no kernel was launched"
    total = lambda key, them: sum(launch[key] for launch in them)
    for key, what in (("sectors_loaded", "sectors of 32 bytes are read"), ("sectors_stored", "sectors of 32 bytes are written")):
        there, enough = total(key, launches), total(key, of_solution)
        if there > 1.1 * enough:
            return f"{there} {what} where {enough} would do: do neighbouring lanes touch neighbours, and each element once?"
        if there < 0.9 * enough:
            return f"{there} {what}, {enough} must be"
    threads = sum(launch["blocks"] * launch["threads"] for launch in launches)
    enough = sum(launch["blocks"] * launch["threads"] for launch in of_solution)
    if threads < enough / 16:
        return f"{threads} threads do all the work; the machine has room for {enough} and more"
    if total("barriers", of_solution) and not total("barriers", launches):
        return "no barrier was passed: how do the threads of a block get each other's results?"
    return None


def grade_plain(program, solution, sizes):
    """Runs plain CUDA at every size, under three schedules; stops at the first that fails and shows why."""
    for size in sizes:
        for seed in (1, 2, 3):
            try:
                done, launches = run_plain(program, size, seed)
            except subprocess.TimeoutExpired:
                print(f"wrong  {' '.join(size)}: it did not end within two minutes")
                return False
            why = f"{done.stdout}{done.stderr}" if done.returncode != 0 else why_not_plain(launches, run_plain(solution, size, seed)[1])
            if why:
                print(f"wrong  {' '.join(size)}: {why}\nRun it yourself: SIM_SEED={seed} {program.relative_to(ROOT)} {' '.join(size)}")
                return False
        print(f"right  {' '.join(size)}, 3 schedules")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", help="two digits: 01")
    parser.add_argument("number", help="of the exercise: 2")
    parser.add_argument("--solution", action="store_true", help="grade the solution that comes with the exercise")
    parser.add_argument("--quick", action="store_true", help="a kernel: at two of the shapes only, the first and a ragged one")
    args = parser.parse_args()
    folders = list(ROOT.glob(f"steps/{args.step}_*/exercises/{args.number}_*"))
    if len(folders) != 1:
        known = ", ".join(sorted(str(f.relative_to(ROOT / "steps")) for f in ROOT.glob("steps/*/exercises/[0-9]_*")))
        parser.error(f"there is no exercise {args.number} of step {args.step}; there are: {known}")
    folder = folders[0]
    step = folder.parent.parent.name
    exercise = f"{step}/{folder.name}"
    which = "solution" if args.solution else "task"
    if (folder / "answers.json").exists():
        path = folder / ("solution.json" if args.solution else "answers.json")
        try:
            answers = json.loads(path.read_text())
        except json.JSONDecodeError as error:
            sys.exit(f"{path.relative_to(ROOT)} is not JSON: {error}. Names need quotation marks, and a comma behind each line but the last")
        if exercise == MYSTERY:
            right = grade_mysteries(answers)
        elif not any(answers.values()):
            print(f"no answer yet: write them into {path.relative_to(ROOT)}")
            right = False
        else:
            right = grade_numbers(answers, EXPECTED[exercise]())
    elif (folder / "task.cu").exists():
        programs = [f"exercise_{step}_{folder.name}_{kernel}" for kernel in (which, "solution")]
        built = subprocess.run(["cmake", "--build", BUILD, "--target", *programs], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if built.returncode != 0:
            print(f"It does not compile:\n{built.stdout}")
        sizes = PLAIN_SIZES[folder.name][: 2 if args.quick else None]
        right = built.returncode == 0 and grade_plain(*(BUILD / "exercises" / program for program in programs), sizes)
    else:
        target, solution = (f"exercise_{step}_{folder.name}_{kernel}" for kernel in (which, "solution"))
        compared = exercise in NO_MORE_WORK
        build = ["cmake", "--build", BUILD, "--target", target, *([solution] if compared else [])]
        built = subprocess.run(build, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if built.returncode != 0:
            print(f"It does not compile:\n{built.stdout}")
        shapes, schedules = RUNS[step]
        tried = shapes[:4:3] if args.quick else shapes
        compared_to = BUILD / "exercises" / solution if compared else None
        right = built.returncode == 0 and grade_kernel(BUILD / "exercises" / target, tried, schedules, exercise in FREE_OF_CONFLICTS, compared_to)
    print("passed" if right else "not yet")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
