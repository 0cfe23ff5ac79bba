"""Times of the steps by the committed benchmarks: of one step, of the ladder, of the README."""

import re
import statistics

from tools.book.tables.peers import torch_peers
from tools.book.tables.registry import markdown, measured_table
from tools.measure.committed import by_variant, described, median
from tools.measure.profiling.machine import DEVICES, quantity
from tools.measure.shapes import SHOWN_AT, SPEED_OVER


@measured_table("times")
def times_table(run, step):
    """Every variant of a step, at every shape that was measured: the median, and in brackets the TFLOP/s."""
    reports = {shape: report for (_, shape), report in run.benchmarks(step).items()}
    if not reports:
        return ""
    results = {shape: by_variant(report) for shape, report in reports.items()}
    variants = dict.fromkeys(variant for named in results.values() for variant in named)

    def cell(result):
        return f"{median(result)} ({result['tflops']:.3g})" if result else "-"

    rows = [[f"`{variant}`", *(cell(named.get(variant)) for named in results.values())] for variant in variants]
    header = ["median (TFLOP/s)", *(f"{shape}:<br>{described(report)}" for shape, report in reports.items())]
    return markdown(header, rows, "l" + "r" * len(reports))


def softmax_rate(result):
    """x read once and y written once over the median time, in B/s."""
    problem = result["problem"]
    moved = 2 * problem["rows"] * problem["cols"] * (4 if problem["dtype"] == "fp32" else 2)
    return moved / (result["times_ms"]["median"] / 1000)


@measured_table("softmax")
def softmax_table(run):
    """Step 03 at every shape that was measured: x read once and y written once over the median time, as a rate and, in brackets, as a
    share of what a copy reaches."""
    reports = list(run.benchmarks("03_online_softmax").values())
    if not reports:
        return ""
    copied = run.machine()["ceilings"]["copy_bytes_per_second"]["value"]

    def cell(result):
        if result is None:
            return "-"
        rate = softmax_rate(result)
        return f"{quantity(rate, 'B/s')} ({rate / copied:.3f})"

    columns = {described(report): by_variant(report) for report in reports}
    variants = dict.fromkeys(variant for named in columns.values() for variant in named)
    rows = [[f"`{variant}`", *(cell(named.get(variant)) for named in columns.values())] for variant in variants]
    return markdown(["x and y over time (share of a copy)", *columns], rows, "l" + "r" * len(columns))


@measured_table("ladder")
def ladder_table(run, step=None):
    """Every variant of every step. Steps that were measured at the same problems share a table; both passes of a step have one each. Of one
    step alone, if it is named."""
    by_step = {}
    for (name, shape), report in run.benchmarks(step).items():
        if shape in SHOWN_AT.get(name, []):
            of_pass = report["results"][0]["problem"]["family"]
            by_step.setdefault((name, of_pass), []).append((SHOWN_AT[name].index(shape), described(report), by_variant(report)))
    shared = {}  # {problems: rows}
    for (name, _), measured in sorted(by_step.items()):
        columns = sorted(measured, key=lambda column: column[:2])
        rows = shared.setdefault(tuple(problem for _, problem, _ in columns), [])
        for variant in dict.fromkeys(variant for *_, results in columns for variant in results):
            times = [median(results[variant]) if variant in results else "-" for *_, results in columns]
            rows.append([*([] if step else [f"[{name[:2]}]({name}.md)"]), f"`{variant}`", *times])
    header = ["variant"] if step else ["step", "variant"]
    return "\n\n".join(markdown([*header, *problems], rows, "l" * len(header) + "r" * len(problems)) for problems, rows in shared.items())


def speeds_over(run, step):
    """(the variant that was compared with others in one run, {another one: [the variant's speed over its, for each problem]})."""
    asked = SPEED_OVER.get(step)
    if not asked:
        return None, {}
    program = asked["run"]
    if "share" in asked:
        if not run.has(f"{program}.json"):
            return None, {}
        shapes = run.read(f"{program}.json")["shapes"]
        contenders = [one for shape, measured in shapes.items() if asked["shapes"] in shape for one in measured["contenders"]]
        return "tuned", {asked["of"]: [one[asked["share"]]["median"] for one in contenders if one["name"] == "tuned"]}
    cells, variants = torch_peers(run, program)
    if not cells:
        return None, {}
    ours = [entry["of"] for cell in cells.values() for name, entry in cell.items() if name == variants[0] or name.startswith("ours, ")]
    named = lambda of, other: [ratio["median"] for name, ratio in of.items() if name == other or name.startswith(f"{other}, ")]
    return variants[0], {other: [speed for of in ours for speed in named(of, other)] for other in asked["others"]}


def large_first(step):
    """Where the README's ladder looks for a time: a large problem, else the tour's."""
    return sorted(SHOWN_AT.get(step, []), key=lambda shape: shape == "tour")


def title_of(root, step):
    """The heading of a step's page; its folder's name where it has none."""
    page = root / "docs" / f"{step}.md"
    return re.match(r"# (.*)", page.read_text())[1] if page.is_file() else step


def time_beside_others(run, step):
    """(problem, time) of `tuned` in the run beside others, where the step names a shape of it."""
    asked = SPEED_OVER.get(step, {})
    if "time_at" not in asked or not run.has(f"{asked['run']}.json"):
        return "-", "-"
    measured = run.read(f"{asked['run']}.json")["shapes"][asked["time_at"]]
    (ours,) = [one for one in measured["contenders"] if one["name"] == "tuned"]
    return f"{asked['time_at']}, {measured['problem']['dtype']}", quantity(ours["burst_ms"]["median"] / 1000, "s")


def measured_row(run, step):
    """(variant, problem, time, speeds over others) of a step on a device; None where nothing of it was measured."""
    measured = run.benchmarks(step)
    report = next((measured[step, shape] for shape in large_first(step) if (step, shape) in measured), None)
    variant, others = speeds_over(run, step)
    beside = [f"{name}: {statistics.geometric_mean(over):.2f} ({min(over):.2f}–{max(over):.2f})" for name, over in others.items() if over]
    if not report:
        problem, time = time_beside_others(run, step)
        return (variant if time != "-" else None, problem, time, beside) if beside else None
    results = by_variant(report)
    variant = variant or min(results, key=lambda name: results[name]["times_ms"]["median"])
    return variant, described(report), median(results[variant]), beside


@measured_table("ladder_short")
def ladder_short_table(run):
    """The README's: a row for each step, with its best variant at one large problem, and the speed of that over other people's kernels: the
    geometric mean over all problems of the run beside them, with the least and the most. A step that was measured on another device alone
    says so."""
    rows = []
    for step in sorted(path.name for path in (run.root / "steps").glob("[0-9][0-9]_*") if path.is_dir()):
        variant, problem, time, beside = None, "-", "-", []
        for one in run.each():
            one.used = []  # a device that has nothing of the step was not used
            if row := measured_row(one, step):
                variant, problem, time, beside = row
                run.used += [device for device in one.used if device not in run.used]
                if one.device != (run.device or DEVICES[0]):
                    problem += f", on an {one.device.upper()}"
                break
        rows.append([f"[{title_of(run.root, step)}](docs/{step}.md)", f"`{variant}`" if variant else "-", problem, time, "; ".join(beside) or "-"])
    return markdown(["step", "variant", "problem", "time", "speed over that of others"], rows, "lllrl")
