"""One launch of a kernel, from whichever source, under Nsight Compute's names; and the rows of the table about it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tools.measure.profiling import ncu
from tools.measure.profiling.machine import floor_seconds, quantity

SECTOR = 32  # bytes
LANES = 32
GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
COPIES = "sm__sass_l1tex_t_{}_pipe_lsu_mem_global_op_ldgsts_cache_{}.sum"


@dataclass
class Launch:
    """A value that the source does not know is not in `values`."""

    kernel: str
    variant: str
    values: dict[str, float]
    marks: dict[str, str] = field(default_factory=dict)  # of values: "~" an estimate, ">=" a bound
    cost: dict | None = None  # what the kernel must do: an entry of `kernels` in docs/result.schema.json
    dtype: str = "fp32"
    lines: list[dict] = field(default_factory=list)  # by source line; the simulator's
    shared: list[dict] = field(default_factory=list)  # one warp's accesses to shared memory, if it was traced

    def get(self, name):
        return self.values.get(name)

    def sum(self, *names):
        """None where none of the names is known."""
        known = [self.values[name] for name in names if name in self.values]
        return sum(known) if known else None

    @property
    def seconds(self):
        time = self.get("gpu__time_duration.sum")
        return None if time is None else time * 1e-9

    def floor(self, machine):
        return floor_seconds(self.cost, self.dtype, machine["ceilings"]) if self.cost else None

    def requests(self, *ops):
        return self.sum(*names_of("requests", *ops))

    def sectors(self, *ops):
        return self.sum(*names_of("sectors", *ops))

    @property
    def ideal_sectors(self):
        """Sectors of a request, on average, if its lanes wanted neighbouring elements. The simulator knows the widths of the accesses and takes
        32 elements for each; Nsight Compute takes one element where all lanes want the same. 4, for 32 elements of 4 bytes, where neither is known."""
        requests = self.requests()
        moved = [line for line in self.lines if line["space"] == "global" and line["requests"]]
        if moved:
            return sum(line["requests"] * line["bytes"] * LANES / SECTOR for line in moved) / sum(line["requests"] for line in moved)
        total = self.get("memory_l2_theoretical_sectors_global_ideal")
        return total / requests if total and requests else 4.0

    @property
    def conflicts(self):
        needed, ideal = self.get("memory_l1_wavefronts_shared"), self.get("memory_l1_wavefronts_shared_ideal")
        return None if needed is None or ideal is None else needed - ideal

    @property
    def tensor_instructions(self):
        counted = self.get("sm__inst_executed_pipe_tensor_op_hmma.sum")
        return self.get(f"{ncu.OPCODES}.HMMA") if counted is None else counted

    def occupancy_limiter(self):
        """ "registers: 16 blocks", what lets the fewest blocks onto a multiprocessor; None where that is not known."""
        limits = {what: self.get(f"launch__occupancy_limit_{what}") for what in ncu.OCCUPANCY_LIMITS}
        if limits["warps"] is None:  # an older profile: not all limits were asked for
            return None
        what = min((what for what in limits if limits[what] is not None), key=limits.get)
        return f"{what}: {limits[what]:.0f} blocks"

    def stalls(self):
        """[(reason, share of a warp's time), …], the longest first; without the cycle in which it issues."""
        spent = {reason: self.get(ncu.STALL.format(reason)) for reason in ncu.STALL_REASONS}
        spent = {reason: cycles for reason, cycles in spent.items() if cycles}
        total = sum(spent.values())
        waits = [(reason, cycles / total) for reason, cycles in spent.items() if reason != "selected"]
        return sorted(waits, key=lambda wait: -wait[1])


def names_of(what, *ops):
    """Nsight Compute's names for "requests" or "sectors" to device memory: of "ld", "st", or both; of "copy" (cp.async), which are counted
    as loads, too."""
    names = []
    for op in ops or ("ld", "st"):
        names += [COPIES.format(what, path) for path in ("access", "bypass")] if op == "copy" else [GLOBAL.format(what, op)]
    return names


# ---- the two sources ----


def from_report(report):
    """The launches that the simulator counted, from what a step's executable wrote with --counters --json."""
    found = []
    for result in report["results"]:
        for counted, cost in zip(result["counters"], costs_of(result, len(result["counters"]))):
            estimates = {name: entry["value"] for name, entry in counted["estimate"].items()}
            marks = {name: "~" for name in estimates} | {name: ">=" for name in counted["at_least"]}
            values = counted["exact"] | estimates | counted["at_least"]
            name = ncu.base_name(counted["kernel"])
            found.append(Launch(name, result["variant"], values, marks, cost, result["problem"]["dtype"], counted["lines"]))
    return found


def from_ncu(rows, report=None):
    """The launches that Nsight Compute saw. The report of the same program says how many kernels a variant launches, and what they must
    do; without a report, they belong to no variant."""
    names = [ncu.base_name(row["Kernel Name"]) for row in rows]
    if report is None:
        return [Launch(name, "", ncu.values(row)) for name, row in zip(names, rows)]
    expected = [(result, cost) for result in report["results"] for cost in costs_of(result, len(result["kernels"]))]
    if len(expected) != len(rows):
        raise ncu.NcuError(f"Nsight Compute saw {len(rows)} launches, the variants have {len(expected)}: measure again")
    return [
        Launch(name, result["variant"], ncu.values(row), cost=cost, dtype=result["problem"]["dtype"])
        for name, row, (result, cost) in zip(names, rows, expected)
    ]


def costs_of(result, launches):
    """What each launch of a variant must do: its kernels, in launch order. A variant that launches another number has no costs."""
    return result["kernels"] if len(result["kernels"]) == launches else [None] * launches


# ---- the rows of the table ----


def count(value):
    return f"{value:,.0f}"


def per_cent(value):
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"


def size(value):
    return quantity(value, "B")


def time(value):
    return quantity(value, "s")


def one_place(value):
    return f"{value:.1f}"


@dataclass
class Row:
    """`value(launch, machine)` is None where it is not known; a str is printed as it is."""

    name: str
    meaning: str
    metrics: list[str]
    value: Callable
    text: Callable = count


def metric(name, meaning, metric_name, text=count):
    return Row(name, meaning, [metric_name], lambda launch, _: launch.get(metric_name), text)


def quotient(value, by):
    return value / by if by and value is not None else None


def achieved(launch, machine):
    floor = launch.floor(machine)
    return 100 * floor / launch.seconds if floor and launch.seconds else None


def top_stalls(launch, _):
    return ", ".join(f"{reason} {100 * share:.0f} %" for reason, share in launch.stalls()[:3]) or None


def in_bytes(value):
    return None if value is None else SECTOR * value


def per_request(name, meaning, op):
    return Row(
        name, meaning, [*names_of("sectors", op), *names_of("requests", op)],
        lambda launch, _: quotient(launch.sectors(op), launch.requests(op)), one_place,
    )  # fmt: skip


def total(name, meaning, names, text=count):
    return Row(name, meaning, names, lambda launch, _: launch.sum(*names), text)


def bytes_of_sectors(name, meaning, names):
    return Row(name, meaning, names, lambda launch, _: in_bytes(launch.sum(*names)), size)


LOCAL = [f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}.sum" for op in ("ld", "st")]
TENSOR_PIPE = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
ACTIVE_WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"

ROWS = [
    metric("blocks", "Blocks of the launch.", "launch__grid_size"),
    metric("threads a block", "Threads of a block.", "launch__block_size"),
    total(
        "shared bytes a block", "Shared memory of a block, without what the driver takes.",
        ["launch__shared_mem_per_block_dynamic", "launch__shared_mem_per_block_static"], size,
    ),
    Row("floor", "The least time by the kernel's operations and bytes, at the measured ceilings.", [], lambda l, m: l.floor(m), time),
    Row("time", "What it took, under the profiler.", ["gpu__time_duration.sum"], lambda l, _: l.seconds, time),
    Row("floor / time", "How much of the ceiling was reached.", [], achieved, per_cent),
    Row("operations", "FLOPs that the kernel must do.", [], lambda l, _: l.cost and l.cost["flops"], lambda v: quantity(v, "FLOP")),
    Row(
        "bytes that must move", "Every array that the kernel touches, once.", [],
        lambda l, _: l.cost and l.cost["bytes_read"] + l.cost["bytes_written"], size,
    ),
    metric("DRAM read", "Bytes from device memory into L2.", "dram__bytes_read.sum", size),
    metric("DRAM written", "Bytes from L2 to device memory.", "dram__bytes_write.sum", size),
    bytes_of_sectors(
        "L1–L2", "Bytes between L1 and L2, both ways: sectors of 32.", ["lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum"]
    ),
    Row("warps–L1", "Bytes of the sectors that the warps asked for.", names_of("sectors"), lambda l, _: in_bytes(l.sectors()), size),
    metric("L1 hits", "Of the sectors asked for, those found in L1.", "l1tex__t_sector_hit_rate.pct", per_cent),
    metric(
        "L2 hits", "The same of L2. It can exceed 100 %: its parts are counted in different replays of the kernel.", "lts__t_sector_hit_rate.pct",
        per_cent,
    ),
    total("load requests", "Loads from device memory, by warp.", names_of("requests", "ld")),
    per_request("sectors a load", "Different pieces of 32 bytes that the lanes of a load touch.", "ld"),
    total("of these cp.async", "Copies from device to shared memory, among the loads.", names_of("requests", "copy")),
    per_request("sectors a cp.async", "The same of these copies.", "copy"),
    total("store requests", "Stores to device memory, by warp.", names_of("requests", "st")),
    per_request("sectors a store", "The same of stores.", "st"),
    metric("shared wavefronts", "Passes through the banks of shared memory.", "memory_l1_wavefronts_shared"),
    Row(
        "bank conflicts", "Wavefronts beyond the ideal number.", ["memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"],
        lambda l, _: l.conflicts,
    ),
    Row("tensor instructions", "mma.sync, by warp. On a GPU nvcc's HFMA2.MMA, which makes constants, counts too.", ["sm__inst_executed_pipe_tensor_op_hmma.sum"], lambda l, _: l.tensor_instructions),
    metric("barriers", "Barrier instructions, by warp.", f"{ncu.OPCODES}.BAR"),
    metric("shuffles", "Shuffles, by warp.", f"{ncu.OPCODES}.SHFL"),
    metric("instructions", "All instructions, by warp.", "smsp__inst_executed.sum"),
    metric("registers a thread", "As the compiler allotted them.", "launch__registers_per_thread"),
    bytes_of_sectors("local memory", "Bytes of registers that did not fit and were spilled, and of arrays that are indexed.", LOCAL),
    Row(
        "most blocks by", "Which resource lets the fewest blocks onto a multiprocessor, and how many.",
        [f"launch__occupancy_limit_{what}" for what in ncu.OCCUPANCY_LIMITS], lambda l, _: l.occupancy_limiter(),
    ),
    metric("warps that fit", "Theoretical occupancy.", "sm__maximum_warps_per_active_cycle_pct", per_cent),
    metric("warps active", "Achieved occupancy, of 64 warps a multiprocessor.", ACTIVE_WARPS, per_cent),
    metric("issue slots", "Cycles in which a scheduler issued an instruction.", ISSUE, per_cent),
    metric("tensor pipe", "Cycles in which the tensor cores worked.", TENSOR_PIPE, per_cent),
    Row("stalls", "What warps wait for: the three longest waits, of a warp's time.", [ncu.STALL.format("*")], top_stalls),
]  # fmt: skip


def cell(row, launch, machine):
    """A row's text for one launch, with the mark of an estimate or of a bound; "-" where it is not known."""
    value = row.value(launch, machine)
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return next((launch.marks[name] for name in row.metrics if name in launch.marks), "") + row.text(value)
