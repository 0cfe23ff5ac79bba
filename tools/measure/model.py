"""How long a kernel takes whose blocks repeat one round, predicted from counts: docs/05b_flash_v2.md, "A model from counts".

Counts of a round come from the simulator (results/sim/NN_name_counts.json) and from machine code (results/machine_code/). What a unit does in a cycle
was measured (docs/machine/DEVICE.json), or is the manufacturer's number. No number here is fitted to the time of a kernel.
"""

import functools
import heapq
import json
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from tools.measure.profiling.machine import MMA_CYCLES

SCHEDULERS = 4  # of an SM: each has a tensor core, and issues an instruction in a cycle
EXPONENTIAL_CYCLES = 8  # for 32 lanes: a scheduler's unit computes 4 in a cycle (CUDA C++ Programming Guide: 16 special functions per SM and cycle)
REGISTERS = 256  # of a thread, as nvcc gives them out: the kernels that are predicted here have 241 to 255
MASK_INSTRUCTIONS = 6  # of a warp for each score of a lane: `list` of step 07 masks all tiles, and executes so many more than `two_loops` (Nsight Compute)
MMA_FLOP = 4096
SECTOR = 32  # bytes

MMA = "sm__inst_executed_pipe_tensor_op_hmma.sum"
LOADS = "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldsm.sum"
WAVEFRONTS = "memory_l1_wavefronts_shared"
READ = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"  # copies by cp.async are among them
ADDED = "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum"


# ---- counts ----


@dataclass(frozen=True)
class Round:
    """What a block does in one round of its main loop, which is about so many queries and keys."""

    threads: int
    queries: int
    keys: int
    mma: float
    loads: float  # wavefronts of ldmatrix
    wavefronts: float  # of all accesses to shared memory
    sectors: float  # that come from L2, or are added there
    first_sectors: float  # that the block reads before its first round
    instructions: float  # beside the mma

    @property
    def exponentials(self):
        """Instructions: each computes those of 32 pairs."""
        return self.queries * self.keys / 32

    @property
    def masked(self):
        """The same round with a mask."""
        return replace(self, instructions=self.instructions + MASK_INSTRUCTIONS * self.exponentials)


def counted_round(build, step, variant, kernel, queries, keys, walks, *flags):
    """A Round as a dictionary, without its instructions: what one block does more in 8 rounds than in 4, in the simulator. `walks`: "queries" or
    "keys", what the rounds go over."""

    def counts(rounds):
        lengths = {"queries": queries, "keys": keys}
        lengths[walks] *= rounds
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "report.json"
            shape = ["--heads", 1, "--seq-q", lengths["queries"], "--seq-k", lengths["keys"], *flags]
            command = [build / "bin" / step, "--variant", variant, *shape, "--no-check", "--counters", "--json", path]
            subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
            (launch,) = (one for one in json.loads(path.read_text())["results"][0]["counters"] if f"::{kernel}<" in one["kernel"])
        return launch["block"][0], {**launch["exact"], **{name: of["value"] for name, of in launch["estimate"].items()}}

    (threads, few), (_, many) = counts(4), counts(8)
    mma, loads, wavefronts, read, added = ((many.get(name, 0) - few.get(name, 0)) / 4 for name in (MMA, LOADS, WAVEFRONTS, READ, ADDED))
    counted = {"mma": mma, "loads": loads, "wavefronts": wavefronts, "sectors": read + added, "first_sectors": few[READ] - 3 * read}
    return {"threads": threads, "queries": queries, "keys": keys, **{name: round(count) for name, count in counted.items()}}


# ---- an SM ----


@functools.cache
def cycles_between(private, shared, warps):
    """Cycles between two rounds that warps of a scheduler finish, where each warp goes from unit to unit and waits where it finds others: mean value
    analysis (Reiser and Lavenberg, 1980). `private`: for how many cycles a warp's round keeps each unit of its scheduler busy; `shared`: the same of
    a unit of the whole SM; `warps`: of a scheduler."""

    @functools.cache
    def queues(population):
        """For so many warps of each scheduler: (rounds in a cycle, warps at each private unit, warps at the shared unit), of each scheduler."""
        found = []
        for at, count in enumerate(population):
            if not count:
                found.append((0.0, (0.0,) * len(private), 0.0))
                continue
            # A warp that comes to a unit finds there what would be there without this warp.
            others = queues(tuple(number - (i == at) for i, number in enumerate(population)))
            times = [cycles * (1 + waiting) for cycles, waiting in zip(private, others[at][1], strict=True)]
            shared_time = shared * (1 + sum(other[2] for other in others))
            rate = count / (sum(times) + shared_time)
            found.append((rate, tuple(rate * time for time in times), rate * shared_time))
        return found

    return 1 / queues((warps,) * SCHEDULERS)[0][0]


def busy(of):
    """{unit: cycles for which a block's round keeps it busy}; a unit of each scheduler counts as one of the SM that is four times as fast."""
    return {
        "tensor cores": of.mma * MMA_CYCLES / SCHEDULERS,
        "shared memory": of.wavefronts,
        "issue slots": (of.mma + of.instructions) / SCHEDULERS,
        "exponentials": of.exponentials * EXPONENTIAL_CYCLES / SCHEDULERS,
    }


def round_cycles(of, blocks):
    """Cycles in which each of an SM's `blocks` blocks finishes a round.

    Blocks do not wait for each other, so their warps go from unit to unit independently. The warps of a single block meet at barriers in each round. So
    they do the same at the same time, and use the units one after the other: only the loads of fragments go on beside the mma."""
    if blocks == 1:
        units = busy(of)
        return max(units["tensor cores"], of.loads) + of.wavefronts - of.loads + of.instructions / SCHEDULERS + units["exponentials"]
    warps = of.threads // 32
    private = (of.mma * MMA_CYCLES / warps, of.instructions / warps, of.exponentials * EXPONENTIAL_CYCLES / warps)
    of_scheduler = blocks * warps // SCHEDULERS
    return of_scheduler * cycles_between(private, of.wavefronts / warps, of_scheduler)


# ---- a GPU ----


def makespan(blocks, slots):
    """When the last block ends, if each free slot takes the next one."""
    free = [0.0] * min(slots, len(blocks))
    for cycles in blocks:
        heapq.heapreplace(free, free[0] + cycles)
    return max(free)


def clock(machine):
    """Hz, while tensor cores work: the measured roof of mma.sync is one mma in MMA_CYCLES at this clock."""
    roof = machine["ceilings"]["mma_sync_flops_per_second"]["value"]
    return roof * MMA_CYCLES / (machine["multiprocessors"] * SCHEDULERS * MMA_FLOP)


@dataclass(frozen=True)
class Prediction:
    """Seconds of a kernel, or of kernels one behind the other. `unit`: the busiest one of the main loop; `unit_seconds`: the loop, if that unit never
    waited; `loop_seconds`: the loop; `seconds`: all."""

    unit: str
    unit_seconds: float
    loop_seconds: float
    seconds: float

    def __add__(self, other):
        longer = max(self, other, key=lambda one: one.loop_seconds)
        return Prediction(
            longer.unit, self.unit_seconds + other.unit_seconds, self.loop_seconds + other.loop_seconds, self.seconds + other.seconds
        )


def predicted(machine, of, rounds, masked=0):
    """The Prediction of a kernel whose blocks have so many `rounds` each, in the order of their start, `masked` of them with a mask."""
    sms, rate = machine["multiprocessors"], clock(machine)
    blocks = machine["registers_per_multiprocessor"] // (of.threads * REGISTERS)  # of an SM
    one, with_mask = round_cycles(of, blocks), round_cycles(of.masked, blocks)
    of_l2 = machine["read_bytes_per_second"]["l2"] / SECTOR  # sectors in a second
    # The first copies come from device memory. The instructions outside the loop take about as long as those of a round.
    outside = machine["latency_cycles"]["hbm"] + of.first_sectors * sms / of_l2 * rate + one
    cycles = makespan([count * one + masked * (with_mask - one) + outside for count in rounds], sms * blocks)
    unit, most = max(busy(of).items(), key=lambda pair: pair[1])
    seconds = [sum(rounds) * each / sms / rate for each in (most, one / blocks)]
    l2_seconds = sum(rounds) * of.sectors / of_l2
    if l2_seconds > max(seconds):
        unit, seconds = "L2", [l2_seconds, l2_seconds]
    return Prediction(unit, *seconds, machine["launch_seconds"] + max(cycles / rate, l2_seconds))


def copied(machine, moved):
    """The Prediction of a kernel that only moves bytes of device memory."""
    seconds = moved / machine["ceilings"]["copy_bytes_per_second"]["value"]
    return Prediction("device memory", 0, 0, machine["launch_seconds"] + seconds)
