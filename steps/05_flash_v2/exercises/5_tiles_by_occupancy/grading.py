"""What the grader expects, and how it comes by that: to be read after your own answer."""

import json
from pathlib import Path

from tools.learn.grading import occupancy
from tools.learn.grading.run import ROOT


def expected():
    """What exercise 5 of step 05 asks for: how many blocks of each tile a multiprocessor holds, on an H200 and on a GPU with 99 KB, and
    which tile the rule chooses. All from what tiles.json and docs/machine/ say."""
    asked = json.loads(Path(__file__).with_name("tiles.json").read_text())
    numbers = {}
    for name, gpu in asked["gpus"].items():
        gpu = json.loads((ROOT / gpu).read_text()) if isinstance(gpu, str) else gpu
        blocks = {tile: occupancy.blocks(gpu, needs) for tile, needs in asked["tiles"].items()}
        rows = {tile: asked["tiles"][tile]["rows_of_a_warp"] for tile, count in blocks.items() if count >= 2}
        (chosen,) = (tile for tile in rows if rows[tile] == max(rows.values()))
        numbers |= {**{f"{tile}_{name}": count for tile, count in blocks.items()}, f"tile_{name}": chosen}
    return numbers
