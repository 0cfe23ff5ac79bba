"""What the plan of step 07 makes of some masks, for the book's pictures (tools/measure/traces.py). Tiles have 128 queries and 64 keys.

lists    which tiles of keys each tile of queries visits under some masks (tests/programs/sparse_plan.cpp)
order    how long the lists are, in the order of the work items, before and after long ones are split
counts   what a block of `balanced` and of `backward` does in a round of its main loop, by head dim
"""

import json
import subprocess

from tools.measure.model import counted_round

STEP = "07_block_sparse"
LISTED = 1024  # tokens
PATTERNS = {  # {what the picture calls it: pattern and mask}
    "random:0.35": ["random:0.35"],
    "band:2, causal": ["band:2", "--causal"],
    "sink:1+local:1": ["sink:1+local:1"],
    "sink:40t+local:200t, causal": ["sink:40t+local:200t", "--causal"],
}
# {what the picture shows: heads, tokens, pattern}
ORDERED = {"mixed": (16, 2048, "random:0.1,uneven:0.3,random:0.05,dense"), "full row": (12, 4096, "full-row:0.1")}


def plan_of(build, heads, tokens, pattern):
    """The work items of that plan in their order, as sparse_plan.cpp prints them."""
    command = [build / "tests" / "sparse_plan", heads, tokens, *pattern]
    return json.loads(subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout)


def lengths_of(build, *plan):
    """[head, first query, tiles] of each work item."""
    return [[head, first, len(tiles)] for head, first, *_, tiles in plan_of(build, *plan)]


def counts(build):
    found = {}
    for dim in (64, 128):
        flags = ["--dim", dim, "--pattern", "random:1"]
        forward = counted_round(build, STEP, "balanced", "sparse_balanced", 128, 64, "keys", "--block-k", 64, *flags)
        backward = counted_round(build, STEP, "backward", f"sparse_backward_{dim}", 64, 128, "queries", "--backward", "--block-q", 64, *flags)
        found |= {f"sparse_balanced<__half, Tile128<{dim}>>": forward, f"sparse_backward_{dim}<__half, {dim}>": backward}
    return found


def observations(build):
    lists = {}
    for name, pattern in PATTERNS.items():
        lists[name] = {first // 128: [right, full, tiles] for _, first, right, full, _, _, tiles in sorted(plan_of(build, 1, LISTED, pattern))}
    work = {
        name: {
            "pattern": pattern,
            "heads": heads,
            "tokens": tokens,
            "items": lengths_of(build, heads, tokens, [pattern, "--no-splits"]),
            "split": lengths_of(build, heads, tokens, [pattern]),
        }
        for name, (heads, tokens, pattern) in ORDERED.items()
    }
    return {
        "lists": {"step": STEP, "tokens": LISTED, "queries": 128, "keys": 64, "rows": "tile of queries: [right, full, tiles of keys]", "masks": lists},
        "order": {"step": STEP, "item": "[head, first query, tiles of keys]", "work": work},
        "counts": {"step": STEP, "rounds": counts(build)},
    }
