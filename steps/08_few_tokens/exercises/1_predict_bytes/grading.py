"""What the grader expects, and how it comes by that: to be read after your own answer."""

import math

from tools.learn.grading.run import BUILD, counters_of
from tools.learn.grading.table import LOADED, LOADS

LATENCY, BANDWIDTH, MULTIPROCESSORS = 332e-9, 4.39e12, 132  # of the page: seconds, bytes/s
WARP_SLOT = 32 * 16  # bytes of a slot of `wide_loads`: 16 a lane
MMA_SLOT = 16 * 32 * 2  # bytes of a slot of `row_groups`, of one group: 16 rows, 32 k, fp16


def expected():
    """What exercise 1 of step 08 asks for: sectors and requests that the simulator counts, and bytes in flight."""
    shape = ["--m", "3", "--n", "200", "--k", "336", "--no-check"]
    counted = {}
    for variant in ("thread_per_row", "warp_per_row", "wide_loads"):
        counted |= counters_of(BUILD / "bin" / "08_few_tokens", "--variant", variant, *shape)
    needed = LATENCY * BANDWIDTH / MULTIPROCESSORS
    return {
        **{f"{variant}_sectors": counts[LOADED] for variant, counts in counted.items()},
        **{f"{variant}_requests": counted[variant][LOADS] for variant in ("warp_per_row", "wide_loads")},
        "wide_loads_bytes": 3 * 8 * 3 * WARP_SLOT,  # three blocks of eight warps, three slots
        "tile_bytes": 3 * 12 * 2 * MMA_SLOT,  # three groups, twelve warps, two slots
        "fewest_slots": math.ceil(needed / (2 * MMA_SLOT)),  # of two warps with one group
    }
