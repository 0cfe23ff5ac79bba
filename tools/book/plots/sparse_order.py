"""Draws which place on the GPU computes what when, for two masks of step 07: in the order of step 05, in the plan's, and with long rows split.

The lists and their order are those of the plan's kernels, run in the simulator (results/sim/07_block_sparse_order.json). The times are a model: a
tile takes one unit, a work item ITEM units more for its start and end, and each place takes the next item when it is free.
"""

import heapq
import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, save

PLACES = {"mixed": 33, "full row": 66}  # an eighth and a quarter of the blocks that an H200 holds at once: 132 SMs, two blocks on each
ITEM = 2  # tiles' time for the start and the end of a work item
SHORT, LONG = {"facecolor": "#9ecae9"}, {"facecolor": "#d55e00", "hatch": "////"}


def in_step_05s_order(items):
    """Head by head, the last tile of queries first."""
    return sorted(items, key=lambda item: (item[0], -item[1]))


def schedule(items, places):
    """[(place, begin, duration, tiles), …] of the items in their order."""
    free = [(0, place) for place in range(places)]
    done = []
    for _, _, tiles in items:
        begin, place = heapq.heappop(free)
        done.append((place, begin, tiles + ITEM, tiles))
        heapq.heappush(free, (begin + tiles + ITEM, place))
    return done


def draw_order(axes, title, items, places, longest):
    done = schedule(items, places)
    end = max(begin + duration for _, begin, duration, _ in done)
    even = sum(duration for *_, duration, _ in done) / places
    for place in range(places):
        for is_long, look in ((False, SHORT), (True, LONG)):
            bars = [(begin, duration) for at, begin, duration, tiles in done if at == place and (tiles > longest) == is_long]
            axes.broken_barh(bars, (place, 0.86), edgecolor="white", linewidth=0.4, **look)
    axes.axvline(even, color="black", linewidth=1, linestyle="--")
    axes.set(ylim=(places, 0))
    axes.set_title(title, loc="left", fontsize=8.5, weight="bold")
    axes.set_title(f"ends at {end}, even: {even:.0f}", loc="right", fontsize=7.5)
    axes.set_yticks([])
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return end


def draw(work):
    figure, axes = plt.subplots(2, 2, figsize=(9.2, 5.2), layout="constrained", sharex="row")
    mixed, full_row = work["mixed"], work["full row"]
    panels = [
        [("heads of mixed weight: step 05's order", in_step_05s_order(mixed["items"])), ("heads of mixed weight: ordered", mixed["items"])],
        [("one full row a head: ordered", full_row["items"]), ("one full row a head: balanced", full_row["split"])],
    ]
    for row, (line, (name, places)) in enumerate(zip(panels, PLACES.items(), strict=True)):
        problem = work[name]
        longest = sum(tiles for *_, tiles in problem["items"]) / len(problem["items"]) * 1.5
        ends = [draw_order(axis, title, items, places, longest) for axis, (title, items) in zip(axes[row], line, strict=True)]
        axes[row][0].set(xlim=(0, max(ends)))
        axes[row][0].set_ylabel(f"{places} places for blocks", fontsize=8)
    for axis in axes[1]:
        axis.set_xlabel("time of a model: one unit a tile, two more a work item", fontsize=8)
    entries = [
        (plt.Rectangle((0, 0), 1, 1, edgecolor="white", **SHORT), "work items"),
        (plt.Rectangle((0, 0), 1, 1, edgecolor="white", **LONG), "those more than 1.5 times as long as the mean"),
        (plt.Line2D([], [], color="black", linewidth=1, linestyle="--"), "end if all places had the same work"),
    ]
    figure.legend(*zip(*entries, strict=True), loc="outside lower center", ncols=3, fontsize=7.5, frameon=False)
    return figure


def from_committed_numbers():
    return draw(json.loads((ROOT / "results" / "sim" / "07_block_sparse_order.json").read_text())["work"])


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)
