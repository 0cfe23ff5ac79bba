"""Draws which sectors of 32 bytes and which lines of 128 bytes a warp's 32 lanes touch, for three patterns of loads.

The counts are made here, from the lanes' addresses, by the rule that the simulator has too: a request costs the sectors that its lanes touch.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from matplotlib.patches import Rectangle

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import WIDTH, canvas, save, write

LANES, SECTOR, LINE = 32, 32, 128  # lanes of a warp; bytes
ROW = 32 * 4  # bytes of a row of 32 floats: Q, K, V and O of the tour
USED = {"facecolor": "#0072b2", "edgecolor": "white", "linewidth": 0.5}
MOVED = {"facecolor": "#fbdfcc", "edgecolor": "#d55e00", "hatch": "/////", "linewidth": 0}
OTHER = {"facecolor": "white", "edgecolor": "#888888", "linewidth": 0.6}
LEFT, RIGHT = 1.0, WIDTH - 0.15  # of a line of memory


@dataclass(frozen=True)
class Pattern:
    """One load of a warp: each lane's first byte, and how many it reads."""

    title: str
    code: str
    stride: int
    size: int
    element: int

    def addresses(self):
        return [lane * self.stride for lane in range(LANES)]


PATTERNS = [
    Pattern("neighbours, fp32", "row[lane]", 4, 4, 4),
    Pattern("neighbours, half2", "row2[lane]", 4, 4, 2),
    Pattern("a column of a matrix, fp32: the stride is a row", "m[lane][0]", ROW, 4, 4),
]


def touched(pattern, unit):
    """The sectors (or lines) that the load touches, in order."""
    return sorted({byte // unit for address in pattern.addresses() for byte in range(address, address + pattern.size)})


def counts(pattern):
    """(elements, sectors, lines, share of the moved bytes that lanes use)."""
    sectors = len(touched(pattern, SECTOR))
    return LANES * pattern.size // pattern.element, sectors, len(touched(pattern, LINE)), LANES * pattern.size / (sectors * SECTOR)


def draw_line(axes, pattern, line, y, height):
    """128 bytes of memory: four sectors, and in them the words that lanes use."""
    byte = (RIGHT - LEFT) / LINE
    sectors = touched(pattern, SECTOR)
    for sector in range(LINE // SECTOR):
        style = MOVED if line * LINE // SECTOR + sector in sectors else OTHER
        axes.add_patch(Rectangle((LEFT + sector * SECTOR * byte, y), SECTOR * byte, height, **style))
    for address in pattern.addresses():
        if address // LINE == line:
            for part in range(pattern.size // pattern.element):
                x = LEFT + (address % LINE + part * pattern.element) * byte
                axes.add_patch(Rectangle((x, y), pattern.element * byte, height, **USED))
    for sector in range(LINE // SECTOR + 1):
        x = LEFT + sector * SECTOR * byte
        axes.plot([x, x], [y, y + height], color="black", linewidth=1.4 if height > 0.1 else 0.7, solid_capstyle="butt")


def draw_pattern(axes, pattern, top, height):
    """The lines of memory from `top` down. Returns where they end."""
    elements, sectors, lines, share = counts(pattern)
    write(axes, 0.1, top - 0.1, pattern.title, ha="left", weight="bold")
    found = f"{elements} elements · {sectors} sectors · {lines} line{'s' * (lines > 1)} · {100 * share:g} % of the bytes used"
    write(axes, 0.1, top - 0.3, found, ha="left")
    y = top - 0.45
    for i, line in enumerate(touched(pattern, LINE)):
        y -= height
        draw_line(axes, pattern, line, y, height * 0.9)
        owners = [lane for lane, address in enumerate(pattern.addresses()) if address // LINE == line]
        if i % 4 == 0 or i == lines - 1:
            name = f"lane {owners[0]}" if len(owners) == 1 else pattern.code
            write(axes, LEFT - 0.08, y + height * 0.45, name, ha="right")
    if lines == 1:  # whose sector is whose
        wide = (RIGHT - LEFT) / (LINE // SECTOR)
        for sector in range(LINE // SECTOR):
            owners = [lane for lane, address in enumerate(pattern.addresses()) if address // SECTOR == sector]
            write(axes, LEFT + (sector + 0.5) * wide, y - 0.11, f"lanes {owners[0]}–{owners[-1]}")
        y -= 0.2
    return y


def draw():
    figure, axes = canvas(5.82)
    y = 5.77
    for pattern, height in zip(PATTERNS, (0.24, 0.24, 0.075), strict=True):
        y = draw_pattern(axes, pattern, y, height) - 0.17
    legend = [(USED, "bytes that\na lane uses", 0.1), (MOVED, "moved, but\nnot used", 1.55), (OTHER, "a sector of 32 bytes\nthat does not move", 2.9)]
    for style, text, x in legend:
        axes.add_patch(Rectangle((x, y - 0.27), 0.25, 0.2, **{**style, "edgecolor": style["edgecolor"] if style is not USED else "white"}))
        write(axes, x + 0.33, y - 0.17, text, ha="left")
    write(axes, WIDTH / 2, 0.14, "A row is a line of 128 bytes. Black marks: its 4 sectors of 32 bytes.", style="italic")
    return figure


if __name__ == "__main__":
    save(__doc__, draw)
