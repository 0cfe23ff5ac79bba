"""What the simulator counted, cost and said."""

from tools.book.tables.registry import TableError, markdown, measured_table, table
from tools.measure.committed import read_json


@measured_table("parity")
def parity_table(run):
    """How many numbers of the simulator were compared with Nsight Compute's (tools/measure/parity.py)."""
    header = ["kernels of", "launches", "exact numbers compared", "different", "estimates", "different"]
    counts = {step: count for one in run.each() for step, count in one.read("parity.json").items()}
    columns = ["launches", "compared", "different", "estimates", "estimates_different"]
    return markdown(header, [[f"`{step}`", *(count[c] for c in columns)] for step, count in counts.items()], "lrrrrr")


@table("io_theorem")
def io_theorem_table(root):
    """Bytes that attention asks of memory, by formula and counted (tools/learn/io_counts.py)."""
    points = read_json(root, "results/sim/io_theorem.json")["points"]
    rows = [
        [
            p["algorithm"] + (f", {p['kib']} KB" if p["kib"] else ""),
            p["n"],
            p["d"],
            f"{p['predicted'] / 1e6:.3f}",
            f"{p['counted'] / 1e6:.3f}",
            f"{(p['counted'] / p['predicted'] - 1) * 100:.2f} %",
        ]
        for p in sorted(points, key=lambda p: (p["d"] != 64, p["d"], p["n"]))
    ]
    return markdown(["requested, one head, fp16", "N", "d", "expected, MB", "counted, MB", "more"], rows, "lrrrrr")


@table("simulator_cost")
def simulator_cost_table(root):
    """What the simulator's checks cost (build/sim/tests/simt_speed)."""
    rows = read_json(root, "results/sim/speed.json")["rows"]
    columns = ["bounds", "races", "counters", "all"]
    return markdown(["ns", *columns], [[row["what"], *(f"{row[c]:.0f}" for c in columns)] for row in rows], "lrrrr")


@table("printed")
def printed(root, path, lines=None):
    """A committed text as a fenced block: all of it, or its first lines."""
    if not (root / path).is_file():
        raise TableError(f"{path} does not exist")
    text = (root / path).read_text().splitlines()
    if lines is not None and not (lines.isdecimal() and 0 < int(lines) <= len(text)):
        raise TableError(f"printed: {lines} is not a number of lines of {path}, which has {len(text)}")
    if any("```" in line for line in text):
        raise TableError(f"printed: {path} holds a fence")
    return "\n".join(["```text", *text[: int(lines) if lines else None], "```"])
