"""What the grader of an exercise looks at. The exercise's grading.py says it; what it leaves out, the grading.py of its step says:

SHAPES        a kernel must be right at these, flags of the step's executable; the first one and the fourth are those of --quick
MORE_SHAPES   and at these
SCHEDULES     flags of the simulator, for each shape
BOUNDS        how much more or less than the solution it may count
NO_MORE_WORK  True: nothing may be counted that the solution does not count
SIZES         of plain CUDA (step 00), instead of all that: what the exercise's check takes (--quick: the first two)
expected()    of an exercise that asks for numbers: {name: number}, predicted by the step's executable, counted by the simulator, or computed
MYSTERY       of an exercise that asks for names, instead of all that: changes.py

This file has what several of them need.
"""

import functools
import runpy
from dataclasses import dataclass

from tools.learn.grading.run import ROOT

ATTENTION_SHAPES = [
    [],
    ["--seq-q", "1", "--seq-k", "3", "--dim", "1"],
    ["--seq-q", "97", "--seq-k", "203", "--dim", "40", "--causal"],
    ["--seq-q", "40", "--seq-k", "17", "--dim", "64", "--causal"],
    ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "33", "--seq-k", "300", "--dim", "33"],
]
WIDE_SHAPE = ["--seq-q", "9", "--seq-k", "37", "--dim", "160"]  # more columns than a block of 128 has threads
SEEDS = [["--sim-seed", seed] for seed in ("1", "2", "3")]
COMPLETIONS = [["--sim-async", mode, *seed] for mode, seed in zip(("late", "eager", "random"), SEEDS)]

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


def step_of(exercise):
    return exercise.split("/")[0]


@functools.cache
def told(exercise):
    """What the grading.py of an exercise "NN_name/N_name" says, and that of its step: {name: value}"""
    step, name = exercise.split("/")
    folder = ROOT / "steps" / step / "exercises"
    found = {}
    for path in (folder / "grading.py", folder / name / "grading.py"):
        found |= runpy.run_path(str(path)) if path.is_file() else {}
    return found


def sizes_of(exercise):
    """What the check of plain CUDA takes; None: the exercise is another one."""
    return told(exercise).get("SIZES")


def mystery_of(exercise):
    """The Mystery of an exercise that asks for names; None: it is another one."""
    return told(exercise).get("MYSTERY")


def expected_of(exercise):
    """What an exercise that asks for numbers expects."""
    return told(exercise)["expected"]()


def kernel_of(exercise, quick=False):
    """What the grader of a kernel exercise "NN_name/N_name" looks at; quick: at the first shape and a ragged one."""
    says = told(exercise)
    shapes = says["SHAPES"] + says.get("MORE_SHAPES", [])
    return Kernel(shapes[:4:3] if quick else shapes, says["SCHEDULES"], says.get("BOUNDS", ()), says.get("NO_MORE_WORK", False))
