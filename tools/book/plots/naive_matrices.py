"""Draws the matrices of standard attention as step 01 keeps them in global memory, in scale: their shapes and bytes, and the kernels between them.

Above, a head of the tour's problem: 12 heads of 207 tokens, d = 32, fp32. Below, a head of 16 with 4096 tokens, d = 64. Shapes and bytes are computed
here; tests/tools/test_plots.py compares them with what the kernels of step 01 report (results/h200/bench.json).
"""

import sys
from pathlib import Path

from matplotlib.patches import Rectangle

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import arrow, canvas, save, write

FP32 = 4  # bytes
TOUR, LARGE = (12, 207, 32), (16, 4096, 64)  # heads, tokens, d
THIN = {"facecolor": "#cfe5f4", "edgecolor": "black", "linewidth": 1}
SQUARE = {"facecolor": "#fbdfcc", "edgecolor": "black", "linewidth": 1}
SIDE = 1.5  # inches, of S and P


def sizes(heads, tokens, dim):
    """{matrix: bytes of all heads}."""
    thin, square = heads * tokens * dim * FP32, heads * tokens**2 * FP32
    return {"Q": thin, "K": thin, "V": thin, "O": thin, "S": square, "P": square}


def kernels(heads, tokens, dim):
    """{kernel of step 01, its first word: (bytes read, bytes written)}."""
    size = sizes(heads, tokens, dim)
    lse = heads * tokens * FP32
    return {
        "scores": (size["Q"] + size["K"], size["S"]),
        "softmax": (size["S"], size["P"] + lse),
        "pv": (size["P"] + size["V"], size["O"]),
    }


def megabytes(count):
    return f"{count / 1e6:.3g} MB" if count < 1e9 else f"{count / 1e6:.0f} MB"


def draw_matrix(axes, left, bottom, wide, high, style, *lines, rotation=0):
    axes.add_patch(Rectangle((left, bottom), wide, high, **style))
    for i, line in enumerate(lines):
        y = bottom + high / 2 + 0.18 * ((len(lines) - 1) / 2 - i)
        write(axes, left + wide / 2, y, line, rotation=rotation, weight="bold" if i == 0 else "normal")


def draw_number(axes, x, y, number):
    axes.plot(x, y, marker="o", markersize=14, color="black")
    write(axes, x, y - 0.01, number, color="white", weight="bold")


def draw_kernel(axes, x, y, number, name, moved, reads, writes):
    draw_number(axes, x + 0.1, y, number)
    write(axes, x + 0.28, y, name, ha="left", weight="bold")
    write(axes, x, y - 0.24, f"reads {reads}: {megabytes(moved[0])}", ha="left")
    write(axes, x, y - 0.43, f"writes {writes}: {megabytes(moved[1])}", ha="left")


def draw_tour(axes, top):
    heads, tokens, dim = TOUR
    size, moved = sizes(*TOUR), kernels(*TOUR)
    thin = SIDE * dim / tokens
    left, right = 0.42, 2.35  # of S and P; of the kernels' text
    write(axes, 0.1, top, f"{heads} heads, {tokens} tokens, d = {dim}; a head is drawn", ha="left", weight="bold")
    s = top - 0.2 - thin - 0.06 - SIDE  # bottoms of S and P
    p = s - 0.5 - SIDE
    draw_matrix(axes, left, s + SIDE + 0.06, SIDE, thin, THIN, f"Kᵀ  {dim} × {tokens}")
    draw_matrix(axes, left - thin - 0.06, s, thin, SIDE, THIN, f"Q  {tokens} × {dim}", rotation=90)
    draw_matrix(axes, left, s, SIDE, SIDE, SQUARE, "S", f"{tokens} × {tokens}", megabytes(size["S"]))
    draw_matrix(axes, left, p, SIDE, SIDE, SQUARE, "P", f"{tokens} × {tokens}", megabytes(size["P"]))
    v = left + SIDE + 0.16
    draw_matrix(axes, v, p, thin, SIDE, THIN, f"V  {tokens} × {dim}", rotation=90)
    o = v + thin + 0.32
    draw_matrix(axes, o, p, thin, SIDE, THIN, f"O  {tokens} × {dim}", rotation=90)
    write(axes, left + SIDE + 0.08, p + SIDE / 2, "·", fontsize=15, weight="bold")
    arrow(axes, (v + thin + 0.05, p + SIDE / 2), (o - 0.04, p + SIDE / 2), mutation_scale=12, linewidth=2)
    arrow(axes, (left + SIDE / 2, s - 0.03), (left + SIDE / 2, p + SIDE + 0.03), mutation_scale=12, linewidth=2)
    corner = (left - 0.06 - thin / 2, s + SIDE + 0.06 + thin / 2)
    arrow(axes, corner, (left + 0.16, s + SIDE - 0.17), mutation_scale=12, linewidth=2)
    draw_number(axes, *corner, 1)
    draw_number(axes, left + SIDE / 2 + 0.2, s - 0.24, 2)
    draw_number(axes, v + thin + 0.16, p + SIDE / 2 + 0.2, 3)
    draw_kernel(axes, right, s + SIDE - 0.05, 1, "scores", moved["scores"], "Q and K", "S")
    write(axes, right, s + SIDE - 0.85, f"Q, K, V and O: {megabytes(size['Q'])} each", ha="left")
    write(axes, right, s + SIDE - 1.04, f"S is {size['S'] / size['Q']:.1f} times as large as Q", ha="left", weight="bold")
    draw_kernel(axes, right, s + 0.06, 2, "softmax", moved["softmax"], "S", "P, LSE")
    draw_kernel(axes, o + thin + 0.12, p + SIDE / 2 + 0.2, 3, "P · V", moved["pv"], "P, V", "O")
    return p


def draw_large(axes, top):
    heads, tokens, dim = LARGE
    size, moved = sizes(*LARGE), kernels(*LARGE)
    write(axes, 0.1, top, f"{heads} heads, {tokens} tokens, d = {dim}; a head is drawn", ha="left", weight="bold")
    left, s, thin = 0.42, top - 0.27 - SIDE, SIDE * dim / tokens
    dark = {"facecolor": "#0072b2", "edgecolor": "black", "linewidth": 0.4}
    axes.add_patch(Rectangle((left - 0.06 - thin, s), thin, SIDE, **dark))
    write(axes, left - 0.22, s + SIDE / 2, "Q", weight="bold")
    draw_matrix(axes, left, s, SIDE, SIDE, SQUARE, "S", f"{tokens} × {tokens}", megabytes(size["S"]))
    small = SIDE * TOUR[1] / tokens  # the S above, in this scale
    axes.add_patch(Rectangle((left, s + SIDE - small), small, small, facecolor="black", linewidth=0))
    right = 2.35
    arrow(axes, (right - 0.05, s + SIDE - 0.1), (left + small + 0.02, s + SIDE - small / 2), mutation_scale=9, linewidth=0.8)
    total = sum(sum(pair) for pair in moved.values())
    lines = [
        f"S of {TOUR[1]} tokens, same scale",
        f"Q, K, V and O: {megabytes(size['Q'])} each",
        f"S is {size['S'] / size['Q']:.0f} times as large as Q",
        f"all kernels move {total / 1e9:.2f} GB,",
        f"{100 * 2 * (size['S'] + size['P']) / total:.0f} % of it is S and P",
    ]
    for i, line in enumerate(lines):
        write(axes, right, s + SIDE - 0.1 - 0.28 * i, line, ha="left", weight="bold" if i == 2 else "normal")
    return s


def draw():
    figure, axes = canvas(6.45)
    bottom = draw_tour(axes, 6.3)
    draw_large(axes, bottom - 0.32)
    return figure


if __name__ == "__main__":
    save(__doc__, draw)
