"""What the simulator saw one warp of step 05 do, for the book's pictures (tools/measure/traces.py). Tiles have 64 queries and 64 keys, rows 64 elements.

tiles    which tiles of keys each tile of queries walks over, and where with a mask
order    the order of copies, scores, softmax and P · V
counts   what a block of `tuned` does in a round of its main loop, by head dim
"""

from tools.measure.model import counted_round
from tools.measure.traces import trace

STEP = "05_flash_v2"
TILE = 64
TILE_BYTES = 64 * 2  # of a row
LENGTH = 420  # of queries and keys: the last tile has 36
COUNTED = {64: (128, 64), 96: (128, 64), 128: (128, 64), 256: (64, 32)}  # {head dim: queries and keys of a round}
MASKS = {"dense": [], "causal": ["--causal"], "causal, window 150": ["--causal", "--window", "150"]}


def events_of(build, variant, seq_q, seq_k, *flags):
    """What a warp of the last tile of queries did: of block 0."""
    shape = ["--heads", "1", "--seq-q", str(seq_q), "--seq-k", str(seq_k), "--dim", "64", *flags]
    ((_, events),) = trace(STEP, build, "--variant", variant, *shape)
    return events


def copied_tile(event):
    """The tile of keys that a load or a cp.async takes from K or V; None for other instructions."""
    if "global" not in event or event["global"]["buffer"] not in ("k", "v"):
        return None
    return event["global"]["offsets"][0] // (TILE * TILE_BYTES)


def walk(build, queries, mask):
    """The tiles of keys that the last of the first `queries` queries' tiles walks over, in order; those with a mask end in m. A round
    begins with the barrier that hands over a tile, and only with a mask it asks for NaNs."""
    keys = queries if "--causal" in mask else LENGTH
    events = events_of(build, "registers", queries, keys, *mask)
    tiles = dict.fromkeys(tile for tile in map(copied_tile, events) if tile is not None)
    barriers = [event["op"] for event in events if event["op"].startswith("bar.")][1:]  # the first one is Q's
    return " ".join(f"{tile}m" if op == "bar.red.or" else f"{tile}" for tile, op in zip(tiles, barriers, strict=True))


def order(build, variant):
    """What the warp does, with the tile of keys that it is about, as [what, tile, how often]: K and V are loaded or copied; S, the mma of Q Kᵀ; X, the
    softmax's shuffles; P, the mma of P · V; W, a wait; B, a barrier; Q, the queries."""
    steps, tiles = [], dict.fromkeys("SXP", 4)  # the last tile that each was about: they go from 3 to 0
    doing = transposed = None
    for event in events_of(build, variant, TILE, 4 * TILE):
        op = event["op"]
        if op.startswith("ldmatrix"):
            transposed = op.endswith("trans")  # V's, for the mma that follow
            continue
        if op.startswith("mma.") or op == "__shfl_xor_sync":
            kind = "X" if op.startswith("__") else "P" if transposed else "S"
            tiles[kind] -= kind != doing
            doing, step = kind, [kind, tiles[kind]]
        elif "global" in event and op != "st.global":
            step = [event["global"]["buffer"].upper(), copied_tile(event)]
        elif op in ("bar.sync", "bar.red.or", "cp.async.wait_group"):
            doing, step = None, ["W" if op.startswith("cp") else "B", None]
        else:
            continue
        if steps and steps[-1][:2] == step:
            steps[-1][2] += 1
        else:
            steps.append([*step, 1])
    return [step for step in steps if step[1] != -1]  # the shuffles of the end, which add up l


def counts(build):
    return {
        f"flash_tuned<__half, TunedTile<{dim}>>": counted_round(build, STEP, "tuned", "flash_tuned", *tile, "keys", "--dim", dim)
        for dim, tile in COUNTED.items()
    }


def observations(build):
    rows = range(TILE, LENGTH + TILE, TILE)
    walks = {name: [walk(build, min(row, LENGTH), mask) for row in rows] for name, mask in MASKS.items()}
    return {
        "tiles": {"step": STEP, "traced": "warp 0 of each tile of queries", "length": LENGTH, "tile": TILE, "walks": walks},
        "order": {"step": STEP, "traced": "block 0, warp 0", "variants": {name: order(build, name) for name in ("ldmatrix", "registers", "overlap")}},
        "counts": {"step": STEP, "rounds": counts(build)},
    }
