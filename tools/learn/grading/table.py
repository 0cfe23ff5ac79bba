"""What the grader of each exercise looks at: shapes, schedules, and how much more or less than the solution a kernel may count.

An exercise that has no line in KERNELS runs at the shapes of its step, without bounds.
"""

from dataclasses import dataclass

from tools.learn.grading.kernels import ALL

# What a kernel must pass, by its step or, where another family computes it, by its exercise: shapes, and schedules of each.
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
SPLIT_SHAPES = [
    [],
    ["--seq-q", "1", "--seq-k", "3", "--dim", "1"],
    ["--seq-q", "90", "--seq-k", "70", "--causal"],  # the first 20 rows see no key: all of their parts are empty
    ["--seq-q", "37", "--seq-k", "203", "--dim", "40", "--causal"],
    ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "5", "--seq-k", "300", "--dim", "65"],
]
TURNED_SHAPES = [*ATTENTION_SHAPES, ["--seq-q", "128", "--seq-k", "128", "--dim", "32", "--causal"]]
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
    [
        "--batch",
        "2",
        "--heads",
        "4",
        "--kv-heads",
        "2",
        "--seq-q",
        "150",
        "--seq-k",
        "270",
        "--pattern",
        "random:0.4,dense,sink:1+local:1,empty",
        "--block-k",
        "64",
    ],
    ["--seq-q", "97", "--seq-k", "203", "--causal", "--pattern", "sink:3t+local:70t,dense"],
    ["--heads", "7", "--seq-q", "70", "--seq-k", "330", "--pattern", "dense,empty,empty,empty,empty,empty,empty"],
    ["--heads", "1", "--seq-q", "256", "--seq-k", "2304", "--causal", "--window", "2049"],  # the 33rd tile of a row, and the last, are partial
    ["--heads", "1", "--seq-q", "2048", "--pattern", "full-row:0.05"],
]
SEEDS = [["--sim-seed", seed] for seed in ("1", "2", "3")]
COMPLETIONS = [["--sim-async", mode, *seed] for mode, seed in zip(("late", "eager", "random"), SEEDS)]
RUNS = {
    "01_naive_mha": (ATTENTION_SHAPES, SEEDS),
    "02_tiled_gemm": (GEMM_SHAPES, COMPLETIONS),
    "03_online_softmax": (SOFTMAX_SHAPES, SEEDS),
    "04_flash_v1": (ATTENTION_SHAPES, SEEDS),
    "05_flash_v2": (FLASH_SHAPES, COMPLETIONS),
    "06_backward": (BACKWARD_SHAPES, SEEDS),
    "07_block_sparse": (SPARSE_SHAPES, COMPLETIONS),
    "03_online_softmax/4_split_a_row": (SPLIT_SHAPES, SEEDS),
    "05_flash_v2/4_turn_the_loops": (TURNED_SHAPES, SEEDS),
}

# Plain CUDA (step 00): what the exercise's check takes.
PLAIN_SIZES = {
    "00_first_kernel/1_write_a_vector_kernel": [["1000"], ["1"], ["128"], ["100003"]],
    "00_first_kernel/2_write_a_row_maximum": [["7", "300"], ["1", "1"], ["3", "128"], ["40", "1003"]],
    "00_first_kernel/3_a_race_on_device_memory": [["1000"], ["1"], ["128"], ["20011"]],
}

# Counts, by Nsight Compute's names; the last two are made of others (kernels.py).
LOADS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
STORES = "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"
LOADED = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
STORED = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
SHARED_LOADS = "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
SHARED = "memory_l1_wavefronts_shared"
SHARED_BYTES = "launch__shared_mem_per_block_dynamic"
BARRIERS = "sass__inst_executed_per_opcode.BAR"
SHUFFLES = "sass__inst_executed_per_opcode.SHFL"
LDMATRIX = "smsp__sass_inst_executed_op_ldsm.sum"
ADDITIONS = "smsp__sass_inst_executed_op_global_red.sum"
LOST = "wavefronts_lost"
IN_FLIGHT = "copies_left_in_flight"


@dataclass(frozen=True)
class Bound:
    """A count of one kernel must lie between `least` and `most` times the solution's. The lesson says what to think about."""

    metric: str
    kernel: str
    lesson: str  # behind "the result is right, but "; {count} and {solution} stand for the counts
    most: float = float("inf")
    least: float = 0


@dataclass(frozen=True)
class Kernel:
    shapes: list
    schedules: list
    bounds: tuple = ()
    no_more_work: bool = False  # nothing may be counted that the solution does not count

    @property
    def counted(self):
        return bool(self.bounds or self.no_more_work)

    @property
    def traced(self):
        return any(bound.metric == IN_FLIGHT for bound in self.bounds)


def traffic(kernel, what):
    """No more loads and stores of global memory than the solution makes."""
    return (
        Bound(LOADS, kernel, f"{what}: warps load {{count}} times from global memory, where {{solution}} would do", most=1.05),
        Bound(STORES, kernel, f"{what}: warps store {{count}} times to global memory, where {{solution}} would do", most=1.05),
    )


def waits(kernel, most, lesson="each barrier makes a whole block wait: which two accesses does each of yours separate?"):
    return Bound(BARRIERS, kernel, f"warps pass {{count}} barriers, where {{solution}} would do; {lesson}", most=most)


BOUNDS = {
    "01_naive_mha/2_find_the_fault": (
        *traffic("softmax", "the mend must not read a row more often"),
        waits("softmax", 1.25),
        Bound(SHARED, "softmax", "shared memory takes {count} wavefronts, where {solution} would do: a tree of halves is enough", most=1.2),
    ),
    "01_naive_mha/3_share_the_query": (
        Bound(LOADS, "scores", "warps load {count} times from global memory, where {solution} would do: where is the staged copy of Q used?", most=1.05),
        Bound(SHARED_LOADS, "scores", "Q's copy in shared memory is read by {count} wavefronts, the solution's by {solution}: who reads it?", least=0.2),
        waits("scores", 2),
    ),
    "01_naive_mha/4_five_reports": (
        *traffic("attention", "the mend must not load more"),
        waits("attention", 1.3, "half a warp shares a row: who must wait for whom?"),
        Bound(SHARED, "attention", "shared memory takes {count} wavefronts, where {solution} would do", most=1.1),
    ),
    "02_tiled_gemm/2_find_the_missing_wait": (
        Bound(
            IN_FLIGHT,
            ALL,
            "{count} copies are in flight behind the waits, the solution's {solution}: a wait for everything ends the pipeline. How many groups may stay?",
            least=0.95,
        ),
        waits("gemm", 1.0),
        Bound(LDMATRIX, "gemm", "{count} ldmatrix are issued where {solution} would do", most=1.0),
    ),
    "02_tiled_gemm/3_write_the_b_load": (
        Bound(LOST, "gemm", "shared memory takes {count} wavefronts more than it must; --counters shows which lines", most=1.0),
        Bound(SHARED, "gemm", "shared memory takes {count} wavefronts, where {solution} would do", most=1.0),
        Bound(LDMATRIX, "gemm", "{count} ldmatrix are issued, the solution's {solution}: fragments of B come by ldmatrix.x4", most=1.0, least=1.0),
        *traffic("gemm", "B comes from shared memory"),
    ),
    "02_tiled_gemm/4_write_a_register_tile": (
        Bound(
            SHARED_LOADS,
            "gemm",
            "loads from shared memory take {count} wavefronts, where {solution} would do: 12 words in three accesses serve 32 multiply-adds",
            most=1.1,
        ),
        Bound(
            LOADED,
            "gemm",
            "{count} sectors of global memory are read, where {solution} would do: are A and B read once for a block, and by neighbouring lanes along k?",
            most=1.1,
        ),
        waits("gemm", 1.5),
    ),
    "03_online_softmax/2_find_the_fault": (
        *traffic("softmax", "an online softmax reads a row twice"),
        waits("softmax", 2),
        Bound(SHUFFLES, "softmax", "{count} shuffles are made, the solution's {solution}: the lanes of a warp merge by shuffles", most=1.1, least=0.9),
    ),
    "03_online_softmax/3_write_the_merge": (
        *traffic("softmax", "with ⊕ a row is read twice"),
        waits("softmax", 1.0),
        Bound(SHUFFLES, "softmax", "{count} shuffles are made, the solution's {solution}: merge() needs none of its own", most=1.0, least=1.0),
    ),
    "03_online_softmax/4_split_a_row": (
        Bound(
            STORED,
            "part_states",
            "part_states stores {count} sectors, the solution's {solution}: the states of all parts must be stored, each once",
            most=1.5,
            least=0.4,  # the O of an empty part need not be stored
        ),
        Bound(
            LOADED, "part_states", "part_states reads {count} sectors, where {solution} would do: a part needs its own keys and values, and no others", most=1.5
        ),
        Bound(LOADED, "merge_parts", "merge_parts reads {count} sectors, where {solution} would do: do neighbouring lanes read neighbours?", most=2.5),
        Bound(STORED, "merge_parts", "merge_parts stores {count} sectors, where {solution} would do: do neighbouring lanes store neighbours?", most=1.5),
    ),
    "04_flash_v1/2_find_the_faults": (*traffic("mended_algorithm_1", "a pass over the queries moves O once"), waits("mended_algorithm_1", 1.0)),
    "04_flash_v1/3_write_the_update": (
        Bound(LOADS, "algorithm_1", "warps load {count} times from global memory, where {solution} would do: is each element of O read once?", most=1.02),
        Bound(STORES, "algorithm_1", "warps store {count} times to global memory, where {solution} would do: is each element of O written once?", most=1.02),
        Bound(STORED, "algorithm_1", "stores touch {count} sectors, where {solution} would do: do neighbouring lanes have neighbouring columns?", most=1.1),
        Bound(SHARED, "algorithm_1", "shared memory takes {count} wavefronts, where {solution} would do: does a lane read P and V once?", most=1.1),
        waits("algorithm_1", 1.0, "an element of O belongs to one lane"),
    ),
    "05_flash_v2/2_find_the_race": (
        waits("flash", 1.0, "one line is enough, and it stands before the main loop"),
        Bound(SHARED_BYTES, "flash", "a block takes {count} bytes of shared memory, where {solution} would do: Q's memory is to be recycled", most=1.0),
        Bound(IN_FLIGHT, ALL, "{count} copies are in flight behind the waits, the solution's {solution}: both stages are filled", least=0.95),
        Bound(LDMATRIX, "flash", "{count} ldmatrix are issued where {solution} would do", most=1.0),
    ),
    "05_flash_v2/4_turn_the_loops": (
        Bound(
            STORED,
            "flash",
            "{count} sectors are stored to global memory, where {solution} would do: O and LSE once, by neighbouring lanes, and nothing else",
            most=1.5,
        ),
        Bound(
            LOADED,
            "flash",
            "{count} sectors are loaded from global memory, where {solution} would do: Q once, and K and V once for 32 queries, as far as one of them sees",
            most=1.25,
        ),
        waits("flash", 1.5),
    ),
    "06_backward/2_find_the_race": (
        waits("gradients", 1.25),
        Bound(BARRIERS, "gradients", "warps pass {count} barriers, and {solution} must be: which blocks leave early?", least=1.0),
        Bound(ADDITIONS, "gradients", "warps add {count} times to dQ's sums, the solution's {solution} times", most=1.0, least=1.0),
        *traffic("gradients", "only the last block reads the sums"),
    ),
    "07_block_sparse/1_build_the_list": (
        Bound(STORES, "build_lists", "warps store {count} times, where {solution} would do: do 32 lanes store at once?", most=2),
        Bound(LOADS, "build_lists", "warps load {count} times, where {solution} would do: do 32 lanes look at 32 tiles at once?", most=2.5),
    ),
    "07_block_sparse/4_balance_a_bad_mask": (
        Bound(LOADS, "merge_rows", "the merge loads {count} times, where {solution} would do: is each part read once?", most=1.5),
    ),
}
NO_MORE_WORK = {"05_flash_v2/3_write_the_peeling", "07_block_sparse/2_a_fault_at_a_lists_end"}


def kernel_of(exercise, quick=False):
    """What the grader of a kernel exercise "NN_name/N_name" looks at; quick: at the first shape and a ragged one."""
    shapes, schedules = RUNS.get(exercise) or RUNS[exercise.split("/")[0]]
    return Kernel(shapes[:4:3] if quick else shapes, schedules, BOUNDS.get(exercise, ()), exercise in NO_MORE_WORK)
