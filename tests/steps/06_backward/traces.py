"""What the simulator saw warps of step 06 do, for the book's pictures (tools/measure/traces.py). Tiles have 64 queries; a block has 128 keys.

roles        the order of copies, products and barriers, of a warp of each role
additions    in which round of its loop a block of keys adds to dQ of which tile of queries
counts       what a block of `tuned` and of `deterministic` does in a round of its main loop, by head dim
"""

import re

from tools.measure.model import counted_round
from tools.measure.traces import trace_of

STEP = "06_backward"
QUERIES, KEYS = 64, 128
ROLES = {  # {variant: (head dim, {the name of a warp: its number})}
    "tuned_64": (64, {"each warp": 0}),
    "tuned_128": (128, {"P-warp": 0, "S-warp": 4}),
}
ROLE_TILES = 4  # of queries
COPIED = ("q0", "q1", "q2", "d_o0", "d_o1")
PRODUCTS = {("q", False): "S", ("d_o", False): "dP", ("d_o", True): "dV", ("q", True): "dK", ("k", True): "dQ"}  # by their B
ADDITIONS = 512  # queries and keys


def events_of(build, variant, warp, *shape):
    """What a warp of block 0 did in the variant's main kernel; one head."""
    command = [build / "tests" / "trace_warp", warp, "--variant", variant, "--heads", 1, *shape]
    (events,) = (events for launch, events in trace_of(command) if f"::backward_{variant}<" in launch["kernel"])
    return events


def tile_of_queries(event, row_bytes):
    """That the first address in device memory lies in."""
    return next(offset for offset in event["global"]["offsets"] if offset is not None) // (QUERIES * row_bytes)


def shared_place(event):
    """The tile in shared memory: q0 for RolesSmem<…>::q[0] and for Keys32Smem<…>::stage[0].q. None for other places."""
    stage, name, number = re.match(r".*?::(?:stage\[(\d)\]\.)?(\w+)(?:\[(\d)\])?", event["shared"]["first"]).groups()
    return name + (stage or number or "") if name in ("q", "d_o", "p", "ds", "k", "v") else None


def role_order(events, dim):
    """What a warp does from its first barrier on; positions count its instructions.

    steps: [what, tile of queries, instructions]. C, copies of a tile that comes; S, dP, dV, dK, dQ, the mma of a product with their loads; P, loads of
    LSE and stores of P; dS, loads of P and stores of dS; R, red to dQ; B1 … B3, a barrier, and A2, an arrival that does not wait.
    places: {tile in shared memory: [[tile of queries, first write, behind the last, first read, behind the last], …]}, null where there is none."""
    steps, places, made, waiting = [], {}, {}, []  # made: the tile that each product was last about; waiting: loads before their mma

    def use(place, tile, offset, count):
        """Notes a write (offset 1) or a read (3) by the next `count` instructions. A read without a tile is of what was written last."""
        at = sum(count for *_, count in steps)
        spells = places.setdefault(place, [])
        if tile is not None and (not spells or spells[-1][0] != tile):
            spells.append([tile, None, None, None, None])
        spell = spells[-1]
        spell[offset] = at if spell[offset] is None else spell[offset]
        spell[offset + 1] = at + count
        return spell[0]

    for event in events:
        op = event["op"]
        place = shared_place(event) if "shared" in event else None
        tile, count = None, 1
        if op.startswith("cp.async.c") and "global" not in event:
            continue  # zeros, behind the last tile
        if op.startswith("cp.async.c") and place in COPIED:
            what, tile = "C", tile_of_queries(event, 2 * dim)
            use(place, tile, 1, 1)
        elif op.startswith("ldmatrix") or (op == "ld.shared" and "minus_delta" in event["shared"]["first"]):
            waiting.append((place, op.endswith("trans")))
            continue
        elif op.startswith("mma."):
            loads = [load for load in waiting if load[0]]
            if loads:  # else the same operands as the mma before
                what = PRODUCTS[loads[-1][0].rstrip("012"), loads[-1][1]]
                of = {use(name, None, 3, 1 + len(waiting)) for name, _ in loads if name not in ("k", "v")}
                assert len(of) <= 1, "a product of two tiles"
                made[what] = of.pop() if of else made[what]
            tile, count, waiting = made[what], 1 + len(waiting), []
        elif op == "ld.shared" and "lse2" in event["shared"]["first"]:
            what, tile = "P", made["S"]
        elif op.startswith("stmatrix"):
            what, tile = ("P", made["S"]) if place == "p" else ("dS", made["dP"])
            for name, _ in waiting:  # P, which another warp wrote
                use(name, tile, 3, len(waiting))
            count, waiting = 1 + len(waiting), []
            use(place, tile, 1, count)
        elif op == "red.global.add":
            what, tile = "R", tile_of_queries(event, 4 * dim)
        elif op in ("bar.sync", "barrier.sync", "bar.arrive"):
            what = f"{'A' if op == 'bar.arrive' else 'B'}{event['operand']}"
        else:
            continue
        if not steps and not what.startswith("B"):
            continue  # the prologue
        if steps and steps[-1][:2] == [what, tile]:
            steps[-1][2] += count
        else:
            steps.append([what, tile, count])
    return {"steps": steps, "places": places}


def additions(build, block, mask):
    """[round of the main loop, tile of queries] of all additions to dQ by a block of keys. It is block 0 where the keys before it are left out:
    masks count from the last key."""
    shape = ["--seq-q", ADDITIONS, "--seq-k", ADDITIONS - KEYS * block, "--dim", 32, *mask]
    rounds, found = 0, []
    for event in events_of(build, "tuned_64", 0, *shape):
        rounds += event["op"] == "bar.sync"
        if event["op"] == "red.global.add":
            found.append((rounds, tile_of_queries(event, 4 * 32)))
    return list(map(list, dict.fromkeys(found)))


def counts(build):
    found = {}
    for dim in (64, 128):
        for variant, adds in (("tuned", "true"), ("deterministic", "false")):
            kernel = f"backward_tuned_{dim}"
            found[f"{kernel}<__half, {dim}, {adds}>"] = counted_round(build, STEP, variant, kernel, QUERIES, KEYS, "queries", "--dim", dim)
        kernel = "gradient_of_queries_32"  # at dim 64 two blocks share an SM, at 128 a block of twice as many warps has it
        found[f"{kernel}<__half, {dim}>"] = counted_round(build, STEP, "deterministic", kernel, 2 * dim, 32, "keys", "--dim", dim)
    return found


def observations(build):
    warps = {  # {variant: {warp: what it does}}
        variant: {
            name: role_order(events_of(build, variant, warp, "--seq-q", ROLE_TILES * QUERIES, "--seq-k", KEYS, "--dim", dim), dim)
            for name, warp in of.items()
        }
        for variant, (dim, of) in ROLES.items()
    }
    added = {name: [additions(build, block, mask) for block in range(ADDITIONS // KEYS)] for name, mask in {"no mask": [], "causal": ["--causal"]}.items()}
    return {
        "roles": {"step": STEP, "traced": "block 0; warps 0 and 4", "variants": warps},
        "additions": {"step": STEP, "traced": "tuned_64, block 0, warp 0", "length": ADDITIONS, "queries": QUERIES, "keys": KEYS, "masks": added},
        "counts": {"step": STEP, "rounds": counts(build)},
    }
