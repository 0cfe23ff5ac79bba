"""Draws who waits when: two launches of step 08 on three SMs, first one after the other, then the second as a dependent launch.

What a block does, in which order, was traced in the simulator (results/sim/08_few_tokens_order.json). When it does it is a small model:
weights take LATENCY, an mma TURN, and so on; each SM has room for one block of a launch, and blocks begin one after the other.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.patches import Patch

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, SMALL, WIDTH, arrow, canvas, save, write

SMS = 3
# Time of the model.
START = 5  # from the moment when a launch may begin until its first block runs
STAGGER = 4.5  # from one block to the next
LATENCY, FROM_L2 = 6, 3  # until weights and tokens arrive
TURN = 0.5  # an mma; and meanwhile the next weights arrive
SUMS = 2  # to add the warps' sums, and to write C
COLOURS = {"weights": "#f7c99b", "wait": "#ffffff", "tokens": "#cfe5f4", "mma": "#0072b2", "sums": "#777777"}
MEANING = {
    "weights": "first weights on their way",
    "tokens": "tokens on their way",
    "mma": "mma, next weights on their way",
    "sums": "sums, C",
    "wait": "griddepcontrol.wait",
}
TITLES = {"row_groups": "row_groups: one launch after the other", "dependent": "dependent: weights before the wait, tokens after it"}


@dataclass
class Block:
    """A block of a launch on an SM: its spells, as (what, begin, end)."""

    launch: int
    sm: int
    begin: int
    spells: list = field(default_factory=list)

    def spend(self, what, until):
        """Goes on with `what` until then, if that is not over."""
        if until <= self.end:
            return
        begin = self.spells.pop()[1] if self.spells and self.spells[-1][0] == what else self.end
        self.spells.append((what, begin, until))

    @property
    def end(self):
        return self.spells[-1][2] if self.spells else self.begin


def run_block(block, order, before):
    """The block's spells. `before`: when the launch before has ended."""
    arrived = {}  # when the first of each has come
    for what, count in order:
        if what == "weights":
            arrived.setdefault("weights", block.end + LATENCY)
        elif what == "wait":
            block.spend("weights", min(before, arrived["weights"]))
            block.spend("wait", before)
        elif what == "tokens":
            arrived.setdefault("tokens", block.end + FROM_L2)
        elif what == "mma":
            block.spend("weights", arrived["weights"])
            block.spend("tokens", arrived["tokens"])
            block.spend("mma", block.end + TURN * count)
    block.spend("sums", block.end + SUMS)


def run(order, launches=2):
    """[Block, …] of all launches. A launch may begin at the end of the one before; if it asks for that (`wait`), as soon as the one before has no
    block left to start."""
    blocks, may_begin, before = [], 0, 0
    for launch in range(launches):
        free = [max((block.end for block in blocks if block.sm == sm), default=0) for sm in range(SMS)]
        these = [Block(launch, sm, max(may_begin + START + STAGGER * sm, free[sm])) for sm in range(SMS)]
        for block in these:
            run_block(block, order, before)
        blocks += these
        before = max(block.end for block in these)
        dependent = any(what == "wait" for what, _ in order)
        may_begin = max(block.begin for block in these) if dependent else before
    return blocks


def nothing_requested(blocks):
    """(begin, end) between the two launches in which no weights are on their way."""
    busy = lambda launch: [(begin, end) for block in blocks if block.launch == launch for what, begin, end in block.spells if what in ("weights", "mma")]
    return max(end for _, end in busy(0)), min(begin for begin, _ in busy(1))


def draw_run(axes, top, title, blocks, scale):
    height, line, left = 0.27, 0.36, 0.55
    write(axes, left, top + 0.2, title, ha="left", weight="bold")
    for block in blocks:
        y = top - line * (block.sm + 1) + 0.05
        for what, begin, end in block.spells:
            look = {"facecolor": COLOURS[what], "edgecolor": "black" if what == "wait" else "none", "hatch": "////" if what == "wait" else None}
            axes.broken_barh([(left + begin * scale, (end - begin) * scale)], (y, height), linewidth=0.6, **look)
        axes.broken_barh([(left + block.begin * scale, (block.end - block.begin) * scale)], (y, height), facecolor="none", edgecolor="black", linewidth=0.9)
    for sm in range(SMS):
        write(axes, left - 0.08, top - line * (sm + 1) + 0.05 + height / 2, f"SM {sm}", ha="right")
    below = top - line * SMS - 0.13
    begin, end = nothing_requested(blocks)
    if end > begin:
        for ends in ((begin, end), (end, begin)):
            arrow(axes, *((left + at * scale, below + 0.06) for at in ends))
        write(axes, left + (begin + end) / 2 * scale, below - 0.13, "no weights on their way")
    last = left + max(block.end for block in blocks) * scale
    axes.plot([last, last], [below - 0.02, top + 0.02], color="black", linestyle=":", linewidth=1)


def draw(variants):
    figure, axes = canvas(4.45)
    runs = {name: run(order) for name, order in variants.items()}
    scale = (WIDTH - 0.65) / max(block.end for blocks in runs.values() for block in blocks)
    for top, (name, blocks) in zip((4.1, 2.35), runs.items(), strict=True):
        draw_run(axes, top, TITLES[name], blocks, scale)
    write(axes, WIDTH - 0.1, 0.93, "time, by a model →", ha="right")
    handles = [Patch(facecolor=COLOURS[what], edgecolor="black", linewidth=0.6, hatch="////" if what == "wait" else None) for what in MEANING]
    figure.legend(handles, MEANING.values(), loc="lower center", ncols=2, fontsize=SMALL, frameon=False, handlelength=1.3, columnspacing=1.2)
    return figure


def from_committed_numbers():
    return draw(json.loads((ROOT / "results" / "sim" / "08_few_tokens_order.json").read_text())["variants"])


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)
