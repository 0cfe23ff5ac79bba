"""What tools/measure/model.py predicts, beside what was measured."""

from tools.book.tables.registry import markdown, measured_table
from tools.measure import model
from tools.measure.model_cells import WITHIN, cells
from tools.measure.profiling.machine import MMA_CYCLES, quantity


@measured_table("model_constants")
def model_constants_table(run):
    """The numbers that every prediction uses."""
    machine = run.machine()
    roof = machine["ceilings"]["mma_sync_flops_per_second"]["value"]
    rows = [
        ["an mma", f"{MMA_CYCLES} cycles of a tensor core", "Nsight Compute"],
        ["clock", f"{model.clock(machine) / 1e9:.2f} GHz", f"the roof of `mma.sync`, {quantity(roof, 'FLOP/s')}, at {MMA_CYCLES} cycles"],
        ["a wavefront", "1 cycle of the SM's shared memory", "NVIDIA: 128 bytes"],
        ["an instruction", "1 cycle of a scheduler", "NVIDIA"],
        ["32 exponentials", f"{model.EXPONENTIAL_CYCLES} cycles of a scheduler", "NVIDIA: 16 in a cycle of an SM"],
        ["a mask", f"{model.MASK_INSTRUCTIONS} instructions for 32 pairs", "`list` beside `two_loops`, Nsight Compute"],
        ["latency of device memory", f"{machine['latency_cycles']['hbm']:.0f} cycles", "measured"],
        ["L2", quantity(machine["read_bytes_per_second"]["l2"], "B/s"), "measured"],
        ["device memory", quantity(machine["ceilings"]["copy_bytes_per_second"]["value"], "B/s"), "measured: a copy"],
        ["a launch", quantity(machine["launch_seconds"], "s", 2), "measured"],
    ]
    return markdown(["what", "takes or delivers", "source"], rows)


@measured_table("model")
def model_table(run):
    """By kernel and head dim: the problem with the most time, and how far the predictions of all its problems are from their bursts."""
    groups = {}
    for cell in cells(run):
        groups.setdefault((cell.step, cell.variant, cell.dim), []).append(cell)
    rows = []
    for (step, variant, dim), group in groups.items():
        most = max(group, key=lambda cell: cell.measured)
        offs = [100 * cell.off for cell in group]
        rows.append(
            [
                step,
                f"`{variant}`",
                dim,
                f"{most.prediction.unit}, {100 * most.prediction.unit_seconds / most.measured:.0f} %",
                quantity(most.prediction.seconds, "s"),
                quantity(most.measured, "s"),
                f"{min(offs):+.1f} … {max(offs):+.1f} %",
                f"{sum(abs(cell.off) <= WITHIN for cell in group)} of {len(group)}",
            ]
        )
    header = ["step", "variant", "head dim", "busiest unit", "predicted", "measured", "all problems: off by", "within 10 %"]
    return markdown(header, rows, "llrlrrrr")
