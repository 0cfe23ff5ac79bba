"""Counters from Nsight Compute's raw page as `make gpu-check` keeps it, and what bounds a kernel by them."""

from tools.book.tables.registry import TableError, markdown, measured_table, table
from tools.measure.profiling import ncu
from tools.measure.profiling.digest import by_kernel, meanings
from tools.measure.profiling.launch import from_ncu
from tools.measure.profiling.machine import floor_seconds, quantity


def profiles(run, step, shape):
    """[{metric: text}, …] of the launches of a step at one shape; nothing before the first profile is committed."""
    named = run.profile(step)
    if not named:
        return []
    if shape not in named:
        raise TableError(f"ncu_{step}.csv has no shape {shape} (it has: {', '.join(named)})")
    return named[shape]


def metric(launch, name):
    """A metric as a number; TableError if the profile does not have it."""
    try:
        return float(launch[name].replace(",", ""))
    except (KeyError, ValueError) as error:
        raise TableError(f"the profile has no number {name} for {launch.get('Kernel Name')}") from error


def sectors_per_request(launch, operation):
    """Sectors that a request to device memory touches, on average; "-" where there are no requests."""
    requests = metric(launch, f"l1tex__t_requests_pipe_lsu_mem_global_op_{operation}.sum")
    sectors = metric(launch, f"l1tex__t_sectors_pipe_lsu_mem_global_op_{operation}.sum")
    return f"{sectors / requests:.1f}" if requests else "-"


def floors(run, step, shape):
    """{kernel: its floor time in seconds} as predicted for the benchmark of that shape; nothing where there is none."""
    report = run.benchmarks(step).get((step, shape))
    if not report:
        return {}
    ceilings = run.machine()["ceilings"]
    least = {}
    for result in report["results"]:
        for cost in result["kernels"]:  # where variants share a kernel, the first: whose launch the tables show
            least.setdefault(cost["kernel"], floor_seconds(cost, result["problem"]["dtype"], ceilings))
    return least


@measured_table("kernels")
def kernels_table(run, step, shape):
    """Every kernel of a step at one shape, as Nsight Compute saw its first launch (in base units: ns, bytes)."""
    first = {}
    for launch in profiles(run, step, shape):
        first.setdefault(ncu.base_name(launch["Kernel Name"]), launch)
    least = floors(run, step, shape)
    rows = [
        [
            f"`{name}`",
            quantity(least[name], "s") if name in least else "-",
            quantity(metric(launch, "gpu__time_duration.sum") * 1e-9, "s"),
            sectors_per_request(launch, "ld"),
            sectors_per_request(launch, "st"),
            f"{metric(launch, 'l1tex__t_sector_hit_rate.pct'):.0f} %",
            f"{metric(launch, 'lts__t_sector_hit_rate.pct'):.0f} %",
            quantity(metric(launch, "dram__bytes_read.sum"), "B"),
            quantity(metric(launch, "dram__bytes_write.sum"), "B"),
        ]
        for name, launch in first.items()
    ]
    header = [
        "kernel",
        "floor",
        "time",
        "sectors / load",
        "sectors / store",
        "L1 hits",
        "L2 hits",
        "DRAM read",
        "DRAM written",
    ]
    return markdown(header, rows, "lrrrrrrrr") if rows else ""


@measured_table("profile")
def profile_table(run, step, shape):
    """Every kernel of a step at one shape: what it reached, and what bounds it, by the committed profile."""
    launches = from_ncu(profiles(run, step, shape), run.benchmarks(step).get((step, shape)))
    rows = by_kernel(launches, run.machine())
    return markdown(["kernel", "time", "floor / time", "what bounds it"], rows, "lrrl") if rows else ""


@table("profile_rows")
def profile_rows_table(root):
    """The rows of the profile's table, with Nsight Compute's names."""
    return markdown(["row", "what it is", "metrics"], meanings(), "lll")
