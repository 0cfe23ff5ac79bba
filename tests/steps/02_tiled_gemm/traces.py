"""What the simulator saw one warp of step 02 do, for the book's pictures (tools/measure/traces.py).

banks       where 8 rows of a tile lie in shared memory, and what an ldmatrix of them costs
pipeline    the order of copies, barriers, ldmatrix and mma.sync
"""

import re
from itertools import groupby

from tools.measure.traces import trace

STEP = "02_tiled_gemm"
TILE_BYTES = 64 * 2  # of a row of a k-tile
K_TILES = 8
SHAPE = ["--m", "128", "--n", "256", "--k", "512"]  # these, and at least one tile of C for each variant
CHUNK_LANES = {0: range(8), 1: range(16, 24)}  # which lanes of ldmatrix.x4 give rows 0 to 7 of a piece of A, left and right half
LENGTH = 448  # instructions of each order


def events_of(variant, build):
    """What the warp did in the variant's only launch."""
    ((_, events),) = trace(STEP, build, "--variant", variant, *SHAPE)
    return events


def banks(variant, build):
    """Byte offsets of the 8 chunks of 16 bytes of rows 0 to 7 of the first tile of A, from the four ldmatrix.x4 that read these rows
    (one for each 16 columns), and the wavefronts of one."""
    loads = [e for e in events_of(variant, build) if e["op"] == "ldmatrix.x4" and "::a[0][" in e["shared"]["first"]][:4]
    columns = [[load["shared"]["offsets"][lane] for lane in CHUNK_LANES[half]] for load in loads for half in (0, 1)]
    costs = {(load["shared"]["wavefronts"], load["shared"]["wavefronts_ideal"]) for load in loads}
    ((wavefronts, ideal),) = costs
    return {"wavefronts": wavefronts, "wavefronts_ideal": ideal, "chunks": [list(row) for row in zip(*columns)]}


def token(event):
    """One event of the order, see KEY."""
    op, shared = event["op"], event.get("shared")
    stage = int((re.search(r"::stage\[(\d+)\]", shared["first"]) or [0, 0])[1]) if shared else None
    tile = event["global"]["offsets"][0] // TILE_BYTES % K_TILES if "global" in event else None
    if op == "ld.global":
        return f"G:{tile}"
    if op == "st.shared":
        return f"S{stage}"
    if op.startswith("cp.async.c") and shared:
        return f"C{stage}:{tile}"
    if op == "ldmatrix.x4":
        return f"L{stage}"
    if op.startswith("mma."):
        return "M"
    if op == "cp.async.wait_group":
        return f"W{event['operand']}"
    return {"cp.async.commit_group": "K", "bar.sync": "B"}[op]


KEY = {
    "G:t": "ld.global of k-tile t",
    "Ss": "st.shared to stage s",
    "Cs:t": "cp.async of k-tile t to stage s",
    "K": "cp.async.commit_group",
    "Wn": "cp.async.wait_group n",
    "B": "bar.sync",
    "Ls": "ldmatrix.x4 from stage s",
    "M": "mma.m16n8k16",
}


def order(variant, build):
    """How many mma.sync the warp makes of a k-tile; and its first instructions, as tokens: 8C0:1 stands for eight of C0:1."""
    events = events_of(variant, build)
    runs = [(key, len(list(group))) for key, group in groupby(map(token, events[:LENGTH]))]
    text = " ".join(f"{count if count > 1 else ''}{key}" for key, count in runs)
    return {"mma_per_tile": sum(event["op"].startswith("mma.") for event in events) // K_TILES, "order": text}


def observations(build):
    what = {"step": STEP, "shape": " ".join(SHAPE), "traced": "block 0, warp 0"}
    return {
        "banks": {**what, "variants": {name: banks(name, build) for name in ("tensor_cores", "padding", "swizzle")}},
        "pipeline": {**what, "length": LENGTH, "key": KEY, "variants": {name: order(name, build) for name in ("swizzle", "pipeline", "tuned")}},
    }
