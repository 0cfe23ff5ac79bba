"""Draws where 8 rows of a tile lie on the 32 banks of shared memory, in three kernels of step 02, and how they are read.

Addresses and wavefronts are those of the kernels' own ldmatrix, as traced in the simulator (results/sim/02_tiled_gemm_banks.json).
"""

import json
import sys
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, save

CHUNK, LINE = 16, 128  # bytes of a row that a matrix has; that the 32 banks deliver at once
GROUPS = LINE // CHUNK  # of four banks
READ = {"facecolor": "#d55e00", "edgecolor": "white"}
REST = {"facecolor": "#d3e5f3", "edgecolor": "white"}
NEVER = {"facecolor": "white", "edgecolor": "#9a9a9a", "hatch": "/////", "linewidth": 0}
IDLE = {"facecolor": "#f1f1f1", "edgecolor": "white"}
LAYOUTS = {"tensor_cores": "rows of 128 bytes", "padding": "rows of 144 bytes", "swizzle": "chunk c of row r at c ^ r"}


def draw_box(axes, line, group, style, text="", **text_style):
    axes.add_patch(Rectangle((group, line), 1, 1, **style))
    axes.text(group + 0.5, line + 0.53, text, ha="center", va="center", fontsize=6.3, **text_style)


def draw_memory(axes, chunks):
    """Every chunk of the rows at its place, as row:chunk."""
    places = {offset: (r, c) for r, row in enumerate(chunks) for c, offset in enumerate(row)}
    lines = max(places) // LINE + 1
    for offset in range(0, lines * LINE, CHUNK):
        at = (offset // LINE, offset % LINE // CHUNK)
        if offset not in places:
            draw_box(axes, *at, NEVER)
        elif places[offset][1] == 0:
            draw_box(axes, *at, READ, f"{places[offset][0]}:0", color="white", weight="bold")
        else:
            draw_box(axes, *at, REST, "{}:{}".format(*places[offset]), color="#33536b")


def draw_wavefronts(axes, chunks):
    """What each pass through the banks brings of one matrix: chunk 0 of each row. A bank brings one of those that lie in it at a time."""
    brought = Counter()
    wavefronts = max(Counter(row[0] % LINE for row in chunks).values())
    for line in range(wavefronts):
        for group in range(GROUPS):
            draw_box(axes, line, group, IDLE)
    for r, row in enumerate(chunks):
        group = row[0] % LINE // CHUNK
        draw_box(axes, brought[group], group, READ, f"{r}:0", color="white", weight="bold")
        brought[group] += 1
    return wavefronts


def draw_legend(axes):
    entries = [
        (READ, "3:0", "white", "row 3, chunk 0 (16 bytes):\na part of the first matrix"),
        (REST, "3:5", "#33536b", "row 3, chunk 5: of a later one"),
        (NEVER, "", "black", "padding"),
    ]
    for i, (style, text, colour, meaning) in enumerate(entries):
        draw_box(axes, 3 + 1.5 * i, 0, style, text, color=colour)
        axes.text(1.3, 3.5 + 1.5 * i, meaning, va="center", fontsize=7.5)


def draw(variants):
    figure, axes = plt.subplots(
        2, len(variants), figsize=(8.2, 5.3), height_ratios=[9, 8], sharex=True, sharey="row", layout="constrained"
    )
    figure.get_layout_engine().set(hspace=0.06, wspace=0.05)
    for (memory, banks), (name, traced) in zip(axes.T, variants.items()):
        matrices = traced["wavefronts_ideal"]
        draw_memory(memory, traced["chunks"])
        assert traced["wavefronts"] == matrices * draw_wavefronts(banks, traced["chunks"])
        memory.set_title(LAYOUTS[name], fontsize=8, pad=5)
        memory.text(GROUPS / 2, -1, name, ha="center", weight="bold", fontsize=9.5)
        each = traced["wavefronts"] // matrices
        banks.set_title(f"ldmatrix.x4: {traced['wavefronts']} wavefronts, {each} a matrix", fontsize=8, pad=5)
        banks.set_xlabel("bank", fontsize=8)
        banks.set_xticks(range(GROUPS + 1), range(0, 33, 4), fontsize=7)
    draw_legend(axes[1, 1])
    axes[0, 0].set(xlim=(0, GROUPS), ylim=(9, 0))
    axes[0, 0].set_ylabel("128 bytes of memory a line", fontsize=8)
    axes[1, 0].set(ylim=(8, 0))
    axes[1, 0].set_ylabel("wavefront", fontsize=8)
    axes[1, 0].set_yticks([i + 0.5 for i in range(8)], range(1, 9), fontsize=7)
    axes[0, 0].set_yticks([])
    for one in axes.flat:
        one.spines[:].set_visible(False)
        one.tick_params(length=0)
    return figure


def from_committed_numbers():
    return draw(json.loads((ROOT / "results" / "sim" / "02_tiled_gemm_banks.json").read_text())["variants"])


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)
