"""Runs every step on real input, checks it, and tells the story in one table and one picture.

The input is one attention layer of a small transformer, on an English paragraph (data/minilm_layer). Step 02 computes its Q, K and V,
step 03 its softmax, the steps of attention what lies between Q, K, V and O, and step 06 the gradients of a loss with respect to Q, K
and V. Step 07 does both on a longer input, under a mask of blocks (data/minilm_long). What each variant writes is checked by the step
itself, and compared with the layer in double precision; gradients are compared with those of PyTorch's autograd, of step 07 with NumPy's.
The simulator counts bytes and bank conflicts; it runs the variants that take it long on a part of the input, and the table says on which.
Beside its counts stand the times that results/ holds for a GPU, an H200. A GPU runs all on the whole and measures times itself, and the counts
are then those that results/ holds. Step 00 has no variants: its program runs as it is. What a step does here, its tests/steps/NN_name/tour.py says.
Writes build/tour/ladder.png and build/tour/report.html, which tells the steps in order, with the words of docs/ladder.md. Exit status 1 if a
check failed.
"""

import argparse
import base64
import functools
import html
import json
import os
import re
import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from markdown_it import MarkdownIt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.measure.committed import Results, by_variant, described
from tools.measure.layers import WHOLE, Layer
from tools.measure.profiling import ncu
from tools.measure.profiling.launch import SECTOR, from_ncu, from_report
from tools.measure.profiling.machine import (
    floor_seconds,
    machine_of,
    measured_on,
    quantity,
)
from tools.measure.shapes import SHOWN_AT

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "tour"
# How far an output may lie from the layer in double precision, relative to its largest value. In fp16 the inputs are rounded, too.
TOLERANCE = {"fp32": 1e-5, "fp16": 5e-3}
MAPS = [4, 8]  # the heads that are drawn: a sharp one and a broad one
NOTE = (
    "Rows that are not “whole” ran on the first heads, or on the first columns of the product, because simulating all of it takes minutes. Their MB, "
    "bank conflicts and host time are those of the part: they are not scaled up. A column with “/ output” divides by the count of numbers that the "
    "variant writes, so it compares parts with wholes, to a thousandth. “MB predicted” does not: a product reads all of A for a part of its columns, too."
)
COMMITTED_NOTE = (
    "“{gpu} time” was not measured on this machine. It is the time of the whole input on an NVIDIA {gpu}, from results/{device}/bench.json. A dash: no "
    "time of this problem is committed."
)
COUNTS_NOTE = "Bytes that were asked for, and bank conflicts, were counted by Nsight Compute on an NVIDIA {gpu} (results/{device})."


def plan(root=ROOT):
    """{step: what its tour.py says (layers.py)}, in the order of the ladder."""
    return {path.parent.name: runpy.run_path(str(path)) for path in sorted(root.glob("tests/steps/*/tour.py"))}


def stops(layer, root=ROOT):
    """In the order of the ladder."""
    return [stop for step, says in plan(root).items() if "stops" in says for stop in says["stops"](step, layer)]


def programs(root=ROOT):
    """{step: what its program does}, of those without variants."""
    return {step: says["PROGRAM"] for step, says in plan(root).items() if "PROGRAM" in says}


def jobs_of(stop, variants):
    """In the simulator: a run for each variant, so that as many go on at once as there are cores."""
    return [replace(stop.shorter(stop) if name in stop.long else stop, variant=name) for name in variants]


def folder_of(stop):
    products = [str(len(stop.inputs["a"]))] if "a" in stop.inputs else []  # of a step that has several, of so many rows
    out = OUT / stop.step / "_".join([*stop.truth, *products])
    return out if stop.variant in ("all", "default") else out / stop.variant


def run_stop(binary, stop, on_gpu):
    """Runs the stop's variants. Returns the step's JSON report, and prints what it complained about."""
    out = folder_of(stop)
    folder = out / "input"
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in stop.inputs.items():
        values = values[None] if values.ndim == 3 else values  # heads belong to a batch
        np.save(folder / f"{name}.npy", values.astype(np.float16 if stop.dtype == "fp16" else np.float32))
    for name, values in stop.mask.items():
        np.save(folder / f"{name}.npy", values)
    report = out / "report.json"
    report.unlink(missing_ok=True)
    command = [binary, *stop.flags, "--output", out, "--json", report]
    command += ["--input", folder] if stop.inputs else []
    command += ["--variant", stop.variant] if stop.variant != "default" else []
    command += ["--bench"] if on_gpu else ["--sim-workers", "1"]  # the simulator's runs share the cores
    command += ["--counters"] if stop.inputs and not on_gpu else []  # the layer's projections would take a minute to count
    done = subprocess.run([str(part) for part in command], check=False, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"\n{done.stderr}", file=sys.stderr)
    if not report.exists():
        sys.exit(f"{binary.name} wrote no report (exit status {done.returncode})")
    return json.loads(report.read_text())


def variants_of(binary, stop):
    """(those that can run the stop, the step's reasons against the others), by its report on the first row of each input. Of the
    rows of a product's A all stay, because a variant may take only a few."""
    first_row = lambda values: values[..., :1, :] if values.ndim > 1 else values[:1]
    first = {name: values if name == "a" else first_row(values) for name, values in stop.inputs.items()}
    mask = {name: values[..., :1, :1] if values.ndim == 4 else values for name, values in stop.mask.items()}
    report = run_stop(binary, replace(stop, inputs=first, mask=mask), on_gpu=False)
    return [result["variant"] for result in report["results"]], report["skipped"]


def counted(stop, report, on_gpu):
    """{variant: (bytes that its warps asked for, bank conflicts)}, as far as they were counted, here or by Nsight Compute."""
    if not stop.inputs or (on_gpu and stop.mask):  # what results/ holds has another mask
        return {}
    if on_gpu:
        try:
            launches = from_ncu(Results(ROOT).profile(stop.step)["tour"], report)
        except (KeyError, ncu.NcuError):  # none is stored, or it is of other variants
            return {}
    else:
        launches = from_report(report)
    found = {}
    for launch in launches:
        requested, conflicts = found.get(launch.variant, (0, 0))
        found[launch.variant] = requested + SECTOR * (launch.sectors() or 0), conflicts + (launch.conflicts or 0)
    return found


@dataclass
class Row:
    """A variant: what it moved, how long it took, how right it is."""

    step: str
    variant: str
    part: str  # of the input: all else is of this part
    outputs: int  # numbers in the tensors that it writes
    kernels: int
    predicted: float  # bytes
    requested: float | None
    conflicts: float | None
    gpu_seconds: float | None  # None in the simulator
    committed_seconds: float | None  # of the whole input, as results/ has it; None on a GPU, which measures itself
    host_seconds: float | None  # of the host that simulates; None on a GPU
    floor: float | None  # seconds; None where nobody measured what this GPU can do
    error: float | None  # over allowed; None: not finite, or never written
    off: dict  # {file: how far it is from the layer in double precision, relative to its largest value}
    ok: bool
    note: str = ""  # of its stop
    counted_on: str | None = None  # the device whose counts results/ holds; None in the simulator, which counts itself

    def cells(self):
        missing = lambda value, text: "-" if value is None else text(value)
        return {
            "step": self.step,
            "variant": self.variant,
            "input": self.part,
            "kernels": self.kernels,
            "MB predicted": f"{self.predicted / 1e6:.2f}",
            "MB asked for": missing(self.requested, lambda value: f"{value / 1e6:.2f}"),
            "B asked for / output": missing(self.requested, lambda value: f"{value / self.outputs:,.1f}"),
            "bank conflicts": missing(self.conflicts, lambda value: f"{value:,.0f}"),
            "conflicts / output": missing(self.conflicts, lambda value: f"{value / self.outputs:.2f}"),
            "GPU time, µs": missing(self.gpu_seconds, lambda seconds: f"{seconds * 1e6:.4g}"),
            f"{times_of()} time, µs": missing(self.committed_seconds, lambda seconds: f"{seconds * 1e6:.4g}"),
            "of the roof": missing(self.floor, lambda floor: f"{100 * floor / self.gpu_seconds:.1f} %"),
            "host time, s": missing(self.host_seconds, lambda seconds: f"{seconds:.2f}"),
            "error / allowed": missing(self.error, lambda value: f"{value:.2f}"),
            "off the model": " ".join(f"{name} {off:.1e}" if len(self.off) > 1 else f"{off:.1e}" for name, off in self.off.items()),
            "verdict": "ok" if self.ok else "FAIL",
        }


@functools.cache
def committed_run():
    results = Results(ROOT)
    return results.benchmarks(), results.device


def committed():
    return committed_run()[0]


def times_of():
    """The device whose times results/ holds, as columns call it."""
    return committed_run()[1].upper()


def committed_times(step, shape):
    """{variant: seconds}, from results/; nothing where that shape was not measured."""
    report = committed().get((step, shape))
    return {name: result["times_ms"]["median"] / 1000 for name, result in by_variant(report).items()} if report else {}


def rows_of(stop, report, counts):
    """One for each variant that ran."""
    on_gpu = report["backend"] == "gpu"
    known = machine_of(ROOT, report["device"]["name"]) if on_gpu else None
    elsewhere = committed_times(stop.step, "tour") if stop.variant != "default" and not stop.mask and not on_gpu else {}
    rows = []
    for result in report["results"]:
        folder = folder_of(stop) / (result["variant"] if stop.variant == "all" else "")
        off = {}
        for name, truth in stop.truth.items():
            written = np.load(folder / f"{name}.npy").reshape(truth.shape)
            off[name] = np.abs(written - truth).max() / np.abs(truth).max()
        ratios = [tensor["worst_ratio"] for tensor in result["verdict"]["tensors"]]
        requested, conflicts = counts.get(result["variant"], (None, None))
        floors = [floor_seconds(kernel, result["problem"]["dtype"], known[1]["ceilings"]) for kernel in result["kernels"]] if known else []
        rows.append(
            Row(
                step=stop.step,
                variant=stop.label.format(result["variant"]),
                part=stop.part,
                outputs=sum(truth.size for truth in stop.truth.values()),
                kernels=len(result["kernels"]),
                predicted=sum(kernel["bytes_read"] + kernel["bytes_written"] for kernel in result["kernels"]),
                requested=requested,
                conflicts=conflicts,
                gpu_seconds=result["times_ms"]["median"] / 1000 if on_gpu else None,
                committed_seconds=elsewhere.get(result["variant"]),
                host_seconds=result["host_seconds"],
                floor=sum(floors) if floors else None,
                error=None if None in ratios else max(ratios),
                off=off,
                ok=bool(result["verdict"]["pass"] and not result["findings"] and all(value <= TOLERANCE[stop.dtype] for value in off.values())),
                note=stop.note,
                counted_on=measured_on(ROOT, stop.step) if on_gpu and requested is not None else None,
            )
        )
    return rows


def table_of(rows):
    """A dictionary for each row, all with the same columns: those that are not empty."""
    cells = [row.cells() for row in rows]
    columns = [column for column in cells[0] if any(row[column] != "-" for row in cells)]
    return [{column: row[column] for column in columns} for row in cells]


def as_text(rows):
    """The table for a terminal: a header, a rule, and a line for each row, in aligned columns."""
    columns = list(rows[0])
    widths = [max(len(str(row[c])) for row in [dict(zip(columns, columns)), *rows]) for c in columns]
    line = lambda cells: "  ".join(str(cell).ljust(width) for cell, width in zip(cells, widths)).rstrip()
    return "\n".join([line(columns), line("-" * width for width in widths), *(line(row.values()) for row in rows)])


def as_html(rows):
    cells = lambda tag, values: "".join(f"<{tag}>{html.escape(str(value))}</{tag}>" for value in values)
    body = "".join(f"<tr>{cells('td', row.values())}</tr>" for row in rows)
    return f"<table><tr>{cells('th', rows[0])}</tr>{body}</table>"


def draw_attention(axes, layer, lse, head):
    """P of one head, from the scores and from the LSE that a kernel wrote: P = exp(S − LSE)."""
    p = np.exp(layer.scores[head] - lse[head][:, None])
    axes.imshow(np.sqrt(p), cmap="magma", aspect="equal")
    between_words = np.where(np.eye(len(p), dtype=bool), 0, p)
    between_words[:, [0, -1]] = between_words[[0, -1], :] = 0  # not the markers around the text
    query, key = np.unravel_index(np.argmax(between_words), p.shape)
    axes.set_title(f"P of head {head} (√ for the eye)\nstrongest link: “{layer.text[query]}” → “{layer.text[key]}”", fontsize=9)
    axes.set_xlabel("key")
    axes.set_ylabel("query")


def draw_ladder(axes, rows):
    """A panel for each figure, a bar for each row, a colour for each step."""
    on_gpu = rows[0].gpu_seconds is not None
    steps = list(dict.fromkeys(row.step for row in rows))
    colours = [f"C{steps.index(row.step)}" for row in rows]
    places = range(len(rows))
    axes[0].plot([row.predicted / row.outputs for row in rows], places, "|", color="black", markersize=8)
    asked = [(row.requested or 0) / row.outputs for row in rows]
    beyond = [(row.conflicts or 0) / row.outputs for row in rows]
    panels = [
        ("bytes asked for by warps / output\n(|: must move, predicted)", asked, "log", {}),
        ("shared memory: wavefronts\nbeyond ideal / output", beyond, "symlog", {"linthresh": 0.1}),
        ("error / allowed", [row.error or 0 for row in rows], "linear", {}),
    ]
    if on_gpu:
        panels.append(("GPU time, µs\n(|: the roof's)", [row.gpu_seconds * 1e6 for row in rows], "log", {}))
    for axis, (title, values, scale, options) in zip(axes, panels):
        axis.barh(places, values, color=colours)
        axis.set_xscale(scale, **options)
        axis.set_title(title, fontsize=9)
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_yticks(places, [])
    if on_gpu:
        marked = [(row.floor * 1e6, place) for place, row in zip(places, rows) if row.floor]
        axes[3].plot(*zip(*marked), "|", color="black", markersize=8)
    axes[2].axvline(1, color="black", linewidth=0.8)
    named = [f"{row.step[:2]} {row.variant}" + (f" ({row.part})" if row.part != WHOLE else "") for row in rows]
    axes[0].set_yticks(places, named, fontsize=7)
    axes[0].set_ylim(len(rows) - 0.4, -0.6)


def draw(rows, layer, lse):
    panels = 3 if rows[0].gpu_seconds is None else 4
    figure = plt.figure(figsize=(6 + 3 * panels, max(6, 1 + 0.2 * len(rows))), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[4, 3 * panels])
    for axis, head in zip(left.subplots(2, 1), MAPS):
        if lse is not None:  # an attention step ran on all heads
            draw_attention(axis, layer, lse, head)
    draw_ladder(right.subplots(1, panels, sharey=True), rows)
    figure.savefig(OUT / "ladder.png", dpi=110)


def note_on(rows):
    notes = [NOTE] * any(row.part != WHOLE for row in rows)
    notes += dict.fromkeys(row.note for row in rows if row.note)
    notes += [COMMITTED_NOTE.format(gpu=times_of(), device=times_of().lower())] * any(row.committed_seconds is not None for row in rows)
    notes += [COUNTS_NOTE.format(gpu=device.upper(), device=device) for device in sorted({row.counted_on for row in rows} - {None})]
    return " ".join(notes)


# ---- the report: a story ----


@dataclass(frozen=True)
class Chapter:
    """What docs/ladder.md and the step's page say of a step."""

    title: str
    question: str  # "" where the step has no page
    idea: str  # Markdown


def story(root=ROOT):
    """{step's number: its chapter}, in the order of docs/ladder.md."""
    told = {}
    for number, title, text in re.findall(r"^## (\d\d) · ([^\n]*)\n(.*?)(?=^## |\Z)", (root / "docs" / "ladder.md").read_text(), re.DOTALL | re.MULTILINE):
        named = f"{number} · {title}"
        pages = [path.read_text() for path in root.glob(f"docs/{number}_*.md")]
        page = next((page for page in pages if page.startswith(f"# {named}\n")), "")
        question = re.search(r"\*\*The question:\*\* (.*?)\n\n", page, re.DOTALL)
        told[number] = Chapter(named, " ".join(question[1].split()) if question else "", text.partition("<!--")[0].strip())
    return told


def as_page(markdown):
    """Markdown of docs/ as HTML of build/tour/report.html."""
    return re.sub(r'href="(?!\w+:)', 'href="../../docs/', MarkdownIt("commonmark").render(markdown))


def said_of_counts(rows):
    """Sentences, in Markdown, about what was counted of a step: its first variant beside the one that asked for the fewest bytes."""
    said = []
    for files in dict.fromkeys(tuple(row.off) for row in rows):
        asked = {row.variant: row.requested / row.outputs for row in rows if tuple(row.off) == files and row.requested is not None}
        if len(asked) < 2:
            continue
        first, least = next(iter(asked)), min(asked, key=asked.get)
        what, most, fewest = " and ".join(f"`{name}`" for name in files), f"{asked[first]:,.1f}", f"{asked[least]:,.1f}"
        if most == fewest:
            said.append(f"For each number of {what}, `{first}` asked global memory for {most} bytes, and no variant asked for fewer.")
        else:
            said.append(f"For each number of {what}, `{first}` asked global memory for {most} bytes, and `{least}` asked for {fewest} bytes.")
    return " ".join(said)


def table_of_step(step, rows):
    """The table of one step; in the simulator with a column more, for committed times at a large problem."""
    table = [{column: cell for column, cell in row.items() if column != "step"} for row in table_of(rows)]
    shape = next((shape for shape in SHOWN_AT.get(step, []) if shape != "tour" and committed_times(step, shape)), None)
    if shape is None or rows[0].gpu_seconds is not None:
        return table
    times, problem = committed_times(step, shape), described(committed()[step, shape])
    cell = lambda name: quantity(times[name], "s") if name in times else "-"
    return [row | {f"{times_of()} time, {problem}": cell(row["variant"])} for row in table]


def write_report(rows, where, layer, note, printed=None):
    """`printed`: {step: what its program printed}, of those without variants."""
    picture = base64.b64encode((OUT / "ladder.png").read_bytes()).decode()
    told, parts, printed = story(), [], printed or {}
    steps = dict.fromkeys([*printed, *(row.step for row in rows)])
    for step in steps:
        of_step = [row for row in rows if row.step == step]
        chapter = told.get(step[:2]) or Chapter(step, "", "")
        parts.append(f"<h2>{html.escape(chapter.title)}</h2>")
        if chapter.question:
            parts.append(f"<p><b>The question:</b> {MarkdownIt('commonmark').renderInline(chapter.question)}</p>")
        parts.append(as_page(chapter.idea))
        if step in printed:
            parts.append(f"<p>Here the program printed:</p><pre>{html.escape(printed[step])}</pre>")
        if of_step:
            counts = said_of_counts(of_step)
            parts.append(f"<p><b>Counted:</b> {MarkdownIt('commonmark').renderInline(counts)}</p>" if counts else "")
            parts.append(as_html(table_of_step(step, of_step)))
    style = (
        "body{font:15px/1.5 sans-serif;max-width:80em;margin:2em auto;padding:0 1em}p{max-width:50em}td,th{padding:.2em 1em .2em 0;text-align:left}"
        "table{display:block;overflow-x:auto;font-size:13px}pre{background:#eee;padding:.5em}img{max-width:100%}"
    )
    (OUT / "report.html").write_text(
        f"<!doctype html><meta charset=utf-8><title>FlashSteps: the tour</title><style>{style}</style><h1>The tour</h1>"
        f"<p>One attention layer of all-MiniLM-L6-v2 on {len(layer.text)} tokens of English, on {html.escape(where)}. Every row was checked "
        f"against double precision, and against what the layer itself computes.</p>{''.join(parts)}<h2>All steps</h2><p>{html.escape(note)}</p>"
        f'<img alt="Attention of two heads; bytes, bank conflicts and errors of each variant" src="data:image/png;base64,{picture}">\n'
    )


def run_program(binary):
    """(whether a program without variants was right, what it printed)."""
    done = subprocess.run([binary], check=False, cwd=ROOT, capture_output=True, text=True)
    return done.returncode == 0, done.stdout + done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("preset", help="whose executables to run: sim, gpu, ...")
    preset = parser.parse_args().preset
    folder = ROOT / "build" / preset / "bin"
    layer = Layer()
    planned = [stop for stop in stops(layer) if (folder / stop.step).exists()]
    if not planned:
        parser.error(f"build/{preset}/bin holds no steps: run make {preset} first")

    on_gpu = preset.startswith("gpu")
    rows, lse, where = [], None, ""
    all_right, printed = True, {}
    for step, what in programs().items():
        if (folder / step).exists():
            right, printed[step] = run_program(folder / step)
            all_right = all_right and right
            print(f"{step}: {what} ... {'done' if right else 'FAILED'}")
            print("".join(f"  {line}\n" for line in printed[step].splitlines()), end="")
    with ThreadPoolExecutor(1 if on_gpu else os.cpu_count()) as pool:
        runs = []  # (stop, the step's reasons against variants, [(job, its report to be)])
        for stop in planned:
            each = stop.variant == "all" and not on_gpu
            variants, skipped = variants_of(folder / stop.step, stop) if each else ([], [])
            runs.append((stop, skipped, jobs_of(stop, variants) if each else [stop]))
        # What takes longest begins first, so that no core waits for another at the end.
        longest = sorted((job for _, _, jobs in runs for job in jobs), key=lambda job: (job.part == WHOLE, bool(job.inputs)))
        reports = {id(job): pool.submit(run_stop, folder / job.step, job, on_gpu) for job in longest}
        for stop, skipped, jobs in runs:
            print(f"{stop.step}: {stop.what}, {stop.tokens(layer)} tokens of English, {stop.dtype} ...", end=" ", flush=True)
            found = [(job, reports[id(job)].result()) for job in jobs]
            seconds = [result["host_seconds"] or 0 for _, report in found for result in report["results"]]
            print("done" if on_gpu else f"{sum(seconds):.0f} s of one core")
            for out in skipped + [out for _, report in found for out in report["skipped"]]:
                print(f"  without {out['variant']}: {out['reason']}")
            for job, report in found:
                where = report["device"]["name"]
                rows += rows_of(job, report, counted(job, report, on_gpu))
                if "o" in job.truth and job.truth["o"].shape == layer.o.shape:
                    last = report["results"][-1]["variant"]
                    lse = np.load(OUT / job.step / "o" / last / "lse.npy")[0]
    table, note = table_of(rows), note_on(rows)
    print(f"\nThe ladder, on {where}:\n\n{as_text(table)}\n\n{note}\n")
    draw(rows, layer, lse)
    write_report(rows, where, layer, note, printed)
    print("Picture: build/tour/ladder.png   Report: build/tour/report.html")
    sys.exit(0 if all_right and all(row.ok for row in rows) else 1)


if __name__ == "__main__":
    main()
