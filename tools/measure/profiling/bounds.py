"""What bounds a kernel: rules on its numbers, the same for every kernel. docs/profiling.md explains them.

Each unit of the machine needs some time for its part of the work: its count over what it can do, at a measured ceiling where there is one
(docs/machine/). No unit can be skipped, so the longest of these needs is a lower bound of the kernel's time, and need / time is how busy
the unit was.

1. A unit that was busy for 60 % of the time or more bounds the kernel; of several, the busiest (one that certainly was so before one
   that perhaps was, see below). The others are named, too.
2. If there is none, nothing is worked to its limit: the kernel waits. That is latency.
3. Without a time (the simulator), the unit with the longest need is named: what the counts alone can say.

The load/store pipe of a multiprocessor (L1 and shared memory) makes one pass a cycle. A wavefront of shared memory is a pass. A request to
device memory is one at least, and one for each four sectors; if its sectors lie in different lines, in the worst case one for each sector. Which of
these it was is in no count that we have, so its need has two ends. Where requests are scattered (1.5 times the ideal sectors or more) the
upper end counts, elsewhere the lower one.
"""

from dataclasses import dataclass

from tools.measure.profiling import ncu
from tools.measure.profiling.launch import ACTIVE_WARPS, ISSUE, SECTOR, TENSOR_PIPE
from tools.measure.profiling.machine import quantity

BUSY = 0.6  # of the time; where Nsight Compute, too, draws the line between a busy unit and latency
SCATTERED = 1.5  # sectors over ideal sectors; wavefronts over ideal wavefronts
FLOPS_OF_MMA = 2 * 16 * 8 * 16  # mma.sync m16n8k16; other shapes do less
SCHEDULERS = 4  # of a multiprocessor
L1 = "load/store pipe"


@dataclass
class Need:
    """The time in seconds that a unit needs for its part of a launch, and the most it can have needed."""

    unit: str
    seconds: float
    most: float


@dataclass
class Verdict:
    unit: str  # of a Need; "latency"; "nothing"
    text: str


def rate(launch, machine):
    """Cycles a second, of all multiprocessors together."""
    clock = launch.get("sm__cycles_elapsed.avg.per_second") or 1e6 * machine["sm_clock_mhz"]
    return clock * machine["multiprocessors"]


def is_scattered(launch):
    requests, sectors = launch.requests(), launch.sectors()
    return bool(requests and sectors) and sectors >= SCATTERED * launch.ideal_sectors * requests


def share_of_ncu(launch, name):
    """What Nsight Compute itself says of a unit, as a need; None where it was not asked, or nobody knows the time."""
    share = launch.get(name)
    return None if share is None or launch.seconds is None else share / 100 * launch.seconds


def needs(launch, machine):
    """Every unit that the source can say something about, the longest need first."""
    ceilings, found = machine["ceilings"], []

    def add(unit, seconds, most=None):
        if seconds:
            found.append(Need(unit, seconds, most or seconds))

    moved = launch.sum("dram__bytes_read.sum", "dram__bytes_write.sum") or 0
    add("DRAM bandwidth", moved / ceilings["copy_bytes_per_second"]["value"])
    sectors = launch.sum("lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum") or 0
    add("L2 bandwidth", SECTOR * sectors / machine["read_bytes_per_second"]["l2"])

    wavefronts = launch.get("memory_l1_wavefronts_shared") or 0
    requests, sectors = launch.requests() or 0, launch.sectors() or 0
    least = max(requests, sectors / 4) + wavefronts
    most = max(sectors, least) + wavefronts if is_scattered(launch) else least
    of_ncu = share_of_ncu(launch, "l1tex__throughput.avg.pct_of_peak_sustained_active")
    if of_ncu is not None:
        add(L1, of_ncu)
    else:
        add(L1, least / rate(launch, machine), most / rate(launch, machine))

    of_ncu = share_of_ncu(launch, ISSUE)
    add("issue slots", of_ncu if of_ncu is not None else (launch.get("smsp__inst_executed.sum") or 0) / SCHEDULERS / rate(launch, machine))

    of_ncu = share_of_ncu(launch, TENSOR_PIPE)
    products = launch.tensor_instructions or 0
    add("tensor pipe", of_ncu if of_ncu is not None else FLOPS_OF_MMA * products / ceilings["mma_sync_flops_per_second"]["value"])
    fp32 = launch.sum(*(f"{ncu.OPCODES}.{opcode}" for opcode in ("FFMA", "FADD", "FMUL")))
    if fp32 is not None:  # each takes the pipe as long as a multiply-add does
        flops = 2 * 32 * fp32
    else:
        flops = launch.cost["flops"] if launch.cost and not products else 0
    add("fp32 pipe", flops / ceilings["fp32_flops_per_second"]["value"])
    return sorted(found, key=lambda need: -need.most)


def reason(launch, unit):
    """What makes a unit busy, in words."""
    if unit != L1:
        return unit
    wavefronts, ideal = launch.get("memory_l1_wavefronts_shared") or 0, launch.get("memory_l1_wavefronts_shared_ideal") or 0
    requests, sectors = launch.requests() or 0, launch.sectors() or 0
    of_global = sectors if is_scattered(launch) else max(requests, sectors / 4)
    if wavefronts > of_global:
        if ideal and wavefronts >= SCATTERED * ideal:
            return f"shared-memory banks: {wavefronts / ideal:.1f} wavefronts for each ideal one"
        return "shared-memory bandwidth: a wavefront a cycle, few conflicts"
    if is_scattered(launch):
        ideal = f"neighbouring lanes need {launch.ideal_sectors:.3g}" if launch.lines else f"{launch.ideal_sectors:.3g} would do"
        return f"L1 sectors: {sectors / requests:.1f} per request where {ideal}"
    return "L1 requests: one pass each, few sectors too many"


def per_cent(share):
    return "< 1 %" if share < 0.005 else f"{min(100, 100 * share):.0f} %"


def busy(need, seconds):
    """ "95 %", "24 to 98 %": of the time."""
    low, high = per_cent(need.seconds / seconds), per_cent(need.most / seconds)
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def idle(launch, machine):
    """What a grid that is too small leaves unused, as an ending of a sentence."""
    blocks, places = launch.get("launch__grid_size"), machine["multiprocessors"]
    if blocks is None or blocks >= places:
        return ""
    return f"; {blocks:.0f} block{'s' if blocks > 1 else ''} for {places} multiprocessors"


def spilled(launch):
    """The same of registers that did not fit."""
    sectors = launch.sum(*(f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}.sum" for op in ("ld", "st")))
    return f"; {quantity(SECTOR * sectors, 'B')} of local memory: spilled registers?" if sectors else ""


def latency(launch, machine, found):
    text = "latency: "
    warps = launch.get(ACTIVE_WARPS)
    text += f"{warps:.0f} % of warps active, " if warps is not None else ""
    text += f"no unit busy (most: {found[0].unit} {busy(found[0], launch.seconds)})" if found else "no unit busy"
    if stalls := launch.stalls():
        text += f"; warps wait for {stalls[0][0]}, {per_cent(stalls[0][1])} of their time"
    return Verdict("latency", text + idle(launch, machine) + spilled(launch))


def verdict(launch, machine):
    """What bounds one launch."""
    found = needs(launch, machine)
    if launch.seconds is not None:
        limits = [need for need in found if need.most >= BUSY * launch.seconds]
        limits.sort(key=lambda need: need.seconds < BUSY * launch.seconds)  # those that certainly were come first
        if not limits:
            return latency(launch, machine, found)
        first, *others = limits
        text = f"{reason(launch, first.unit)} ({busy(first, launch.seconds)} of the time)"
        if others:
            text += "; also " + ", ".join(f"{need.unit} {busy(need, launch.seconds)}" for need in others)
        return Verdict(first.unit, text + idle(launch, machine) + spilled(launch))
    if not found:
        return Verdict("nothing", "nothing that was counted takes time")
    first, floor = found[0], launch.floor(machine)
    text = f"by the counts alone: {reason(launch, first.unit)}"
    if floor and first.most > 1.05 * floor:
        low, high = f"{max(1, first.seconds / floor):.1f}", f"{first.most / floor:.1f}"
        text += f" ({low if low == high else f'{low} to {high}'} × the floor)"
    return Verdict(first.unit, text + idle(launch, machine))
