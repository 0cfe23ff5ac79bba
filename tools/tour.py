"""Runs every step on real input, checks it, and tells the story in one table and one picture.

The input is one attention layer of a small transformer, on an English paragraph (data/minilm_layer). Writes build/tour/ladder.png
and build/tour/report.html. Exit status 1 if a check failed.
"""

import argparse
import base64
import html
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from shapes import LAYERED

ROOT = Path(__file__).resolve().parent.parent
LAYER = ROOT / "data" / "minilm_layer"
OUT = ROOT / "build" / "tour"
MODEL_TOLERANCE = 1e-5  # how far y may lie from what the model itself computed, relative to its largest value


def load_layer():
    """y_model [tokens, E]; Q and K [heads, tokens, dim], in double precision; the tokens' text."""
    heads = json.loads((LAYER / "layer.json").read_text())["heads"]
    names = ("x", "y_model", "in_proj_weight", "in_proj_bias")
    x, y_model, weight, bias = (np.load(LAYER / f"{name}.npy").astype(np.float64) for name in names)
    tokens, width = x.shape[1:]
    qkv = (x[0] @ weight.T + bias).reshape(tokens, 3, heads, width // heads)
    text = (LAYER / "tokens.txt").read_text().splitlines()[:tokens]
    return y_model[0], qkv[:, 0].transpose(1, 0, 2), qkv[:, 1].transpose(1, 0, 2), text


def run_step(binary, preset):
    """Runs all variants of a step on the layer. Returns its JSON report; prints what it complained about."""
    out = OUT / binary.name
    out.mkdir(parents=True, exist_ok=True)
    report = out / "report.json"
    report.unlink(missing_ok=True)
    command = [binary, "--layer", LAYER, "--variant", "all", "--output", out, "--json", report]
    if preset.startswith("gpu"):
        command.append("--bench")
    done = subprocess.run([str(part) for part in command], check=False, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
    if not report.exists():
        sys.exit(f"{binary.name} wrote no report (exit status {done.returncode})")
    return json.loads(report.read_text())


def summarise(step, result, y_model):
    """One row of the table: what a variant moved, how long it took, how right it is."""
    y = np.load(OUT / step / result["variant"] / "y.npy").reshape(y_model.shape)
    to_model = np.abs(y - y_model).max() / np.abs(y_model).max()
    moved = sum(kernel["bytes_read"] + kernel["bytes_written"] for kernel in result["kernels"])
    ratios = [tensor["worst_ratio"] for tensor in result["verdict"]["tensors"]]  # null: not finite, or never written
    ok = result["verdict"]["pass"] and not result["findings"] and to_model <= MODEL_TOLERANCE
    times = result["times_ms"]
    return {
        "step": step,
        "variant": result["variant"],
        "kernels": len(result["kernels"]),
        "MB moved": f"{moved / 1e6:.1f}",
        "time": f"{times['median'] * 1000:.1f} µs" if times else f"{result['host_seconds']:.2f} s (host)",
        "error / allowed": "-" if None in ratios else f"{max(ratios):.2f}",
        "off the model": f"{to_model:.1e}",
        "verdict": "ok" if ok else "FAIL",
    }


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


def draw_attention(axes, step, variant, q, k, text, head):
    """P of one head, from the scores and from the LSE that the kernel wrote: P = exp(S − LSE)."""
    lse = np.load(OUT / step / variant / "lse.npy")[0, head]
    p = np.exp(q[head] @ k[head].T / np.sqrt(q.shape[-1]) - lse[:, None])
    axes.imshow(np.sqrt(p), cmap="magma", aspect="equal")
    between_words = np.where(np.eye(len(p), dtype=bool), 0, p)
    between_words[:, [0, -1]] = between_words[[0, -1], :] = 0  # not the markers around the text
    strongest = np.unravel_index(np.argmax(between_words), p.shape)
    axes.set_title(f"P of head {head} (√ for the eye)\nstrongest link: “{text[strongest[0]]}” → “{text[strongest[1]]}”", fontsize=9)
    axes.set_xlabel("key")
    axes.set_ylabel("query")


# One colour for each kind of kernel, by the first word of its name.
COLOURS = {"linear": "0.6", "transpose": "tab:brown", "scores": "tab:blue", "softmax": "tab:orange", "pv": "tab:green"}


def draw_bytes(axes, results):
    """Bytes through device memory, kernel by kernel: what each variant must move at least."""
    for y, result in enumerate(reversed(results)):
        left = 0.0
        for kernel in result["kernels"]:
            size = (kernel["bytes_read"] + kernel["bytes_written"]) / 1e6
            axes.barh(y, size, left=left, color=COLOURS[re.split("[ _]", kernel["kernel"])[0]], edgecolor="white")
            if size > 0.8:
                axes.text(left + size / 2, y, kernel["kernel"].replace("_", "\n"), ha="center", va="center", fontsize=6, color="white")
            left += size
    axes.set_yticks(range(len(results)), [result["variant"] for result in reversed(results)])
    axes.set_xlabel("MB through device memory, predicted")
    axes.set_title("What each variant moves", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("preset", help="whose executables to run: sim, gpu, ...")
    preset = parser.parse_args().preset
    binaries = [binary for step in LAYERED if (binary := ROOT / "build" / preset / "bin" / step).exists()]
    if not binaries:
        parser.error(f"build/{preset}/bin holds no steps: run make {preset} first")

    OUT.mkdir(parents=True, exist_ok=True)
    y_model, q, k, text = load_layer()
    rows, all_results, where = [], [], ""
    for binary in binaries:
        begin = time.monotonic()
        print(f"{binary.name}: one attention layer, {len(text)} tokens of English, all variants ...", end=" ", flush=True)
        report = run_step(binary, preset)
        print(f"{time.monotonic() - begin:.0f} s")
        where = report["device"]["name"]
        rows += [summarise(binary.name, result, y_model) for result in report["results"]]
        all_results += report["results"]
    table = as_text(rows)
    print(f"\nThe ladder, on {where}:\n\n{table}\n")

    figure, axes = plt.subplots(1, 3, figsize=(15, 4.8), width_ratios=[1, 1, 1.5], layout="constrained")
    entropy_order = [4, 8]  # a sharp head and a broad one
    for axis, head in zip(axes, entropy_order):
        draw_attention(axis, binaries[0].name, all_results[0]["variant"], q, k, text, head)
    draw_bytes(axes[2], all_results)
    figure.savefig(OUT / "ladder.png", dpi=110)
    picture = base64.b64encode((OUT / "ladder.png").read_bytes()).decode()
    style = "body{font:15px sans-serif;max-width:75em;margin:2em auto}td,th{padding:.3em 1em .3em 0;text-align:left}img{max-width:100%}"
    (OUT / "report.html").write_text(
        f"<!doctype html><meta charset=utf-8><title>FlashSteps: the tour</title><style>{style}</style><h1>The tour</h1>"
        f"<p>One attention layer of all-MiniLM-L6-v2 on {len(text)} tokens of English, on {html.escape(where)}. Every row was checked "
        f"against double precision, and against what the model itself computes.</p>{as_html(rows)}"
        f'<img alt="Attention of two heads, and the bytes that each variant moves" src="data:image/png;base64,{picture}">\n'
    )
    print("Picture: build/tour/ladder.png   Report: build/tour/report.html")
    sys.exit(0 if all(row["verdict"] == "ok" for row in rows) else 1)


if __name__ == "__main__":
    main()
