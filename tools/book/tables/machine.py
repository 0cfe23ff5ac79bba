"""What a GPU can do, by docs/machine/ and by benchmarks/ceilings."""

from tools.book.tables.registry import markdown, measured_table
from tools.measure.profiling.machine import quantity

HBM = {"h200": "HBM3e", "h100": "HBM3"}


@measured_table("memory")
def memory_table(run):
    """The memory hierarchy: how much, how far, how wide."""
    gpu = run.machine()
    clock = gpu["sm_clock_mhz"] * 1e6
    cycles, rates = gpu["latency_cycles"], gpu["read_bytes_per_second"]
    registers = 4 * gpu["registers_per_multiprocessor"] // 1024
    shared = gpu["shared_bytes_per_multiprocessor"] // 1024

    def row(level, size, key, rate):
        return [level, size, f"{cycles[key]:.0f}", f"{cycles[key] / clock * 1e9:.0f}", rate]

    return markdown(
        ["level", "size", "latency, cycles", "latency, ns", "bandwidth"],
        [
            ["registers", f"{registers} KiB per multiprocessor", "-", "-", "-"],
            row(
                "shared memory",
                f"up to {shared} KiB per multiprocessor",
                "shared",
                quantity(rates["shared"], "B/s") + " read",
            ),
            row(
                "L1 cache",
                "256 KiB per multiprocessor, shared memory included",
                "l1",
                quantity(rates["l1"], "B/s") + " read",
            ),
            row("L2 cache", f"{gpu['l2_bytes'] // 2**20} MiB", "l2", quantity(rates["l2"], "B/s") + " read"),
            row(
                f"device memory ({HBM[run.device]})",
                f"{gpu['memory_bytes'] / 1e9:.0f} GB",
                "hbm",
                quantity(gpu["ceilings"]["copy_bytes_per_second"]["value"], "B/s") + " copied",
            ),
        ],
        "llrrr",
    )


def rate_unit(name):
    """Of a ceiling."""
    return "B/s" if name.endswith("bytes_per_second") else "FLOP/s"


@measured_table("ceilings")
def ceilings_table(run):
    """What a GPU reached, each with the way it was measured."""
    ceilings = run.machine()["ceilings"]
    rows = []
    for name, ceiling in ceilings.items():
        rows.append([ceiling["what"], quantity(ceiling["value"], rate_unit(name))])
    return markdown(["ceiling", "measured"], rows, "lr")


@measured_table("bursts")
def bursts_table(run):
    """What benchmarks/ceilings reached in a burst and without a pause."""
    if not run.has("ceilings.json"):
        return "No run of these kernels is committed yet; `make gpu-check` makes one."
    rows = []
    for name, ceiling in run.read("ceilings.json")["ceilings"].items():
        unit = rate_unit(name)
        clock = f"{ceiling['sm_clock_mhz']} MHz" if "sm_clock_mhz" in ceiling else "-"
        rows.append([ceiling["what"], quantity(ceiling["value"], unit), quantity(ceiling["sustained"], unit), clock])
    return markdown(["what", "burst", "sustained", "SM clock meanwhile"], rows, "lrrr")
