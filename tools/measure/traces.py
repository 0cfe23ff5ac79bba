"""What the simulator saw one warp do, condensed to what the book's pictures are drawn from: writes results/sim/*.json.

fragments.json                  which element of a matrix lies where in the registers of a warp (tests/simt/fragments.cu)
02_tiled_gemm_banks.json        where 8 rows of a tile lie in shared memory, and what an ldmatrix of them costs
02_tiled_gemm_pipeline.json     the order of copies, barriers, ldmatrix and mma.sync
05_flash_v2_tiles.json          which tiles of keys each tile of queries walks over, and where with a mask
05_flash_v2_order.json          the order of copies, scores, softmax and P · V
06_backward_roles.json          the order of copies, products and barriers, of a warp of each role
06_backward_additions.json      in which round of its loop a block of keys adds to dQ of which tile of queries
07_block_sparse_lists.json      which tiles of keys each tile of queries visits under some masks (tests/simt/sparse_plan.cpp)
07_block_sparse_order.json      how long the lists are, in the order of the work items, before and after long ones are split
"""

import argparse
import json
import re
import subprocess
import tempfile
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEP = "02_tiled_gemm"
TILE_BYTES = 64 * 2  # of a row of a k-tile
K_TILES = 8
SHAPE = ["--m", "128", "--n", "256", "--k", "512"]  # these, and at least one tile of C for each variant
CHUNK_LANES = {0: range(8), 1: range(16, 24)}  # which lanes of ldmatrix.x4 give rows 0 to 7 of a piece of A, left and right half
LENGTH = 448  # instructions of each order


def read(path):
    """A file that --trace wrote: [(launch, events), …]."""
    launches = []
    for line in map(json.loads, path.read_text().splitlines()):
        if "kernel" in line:
            launches.append((line, []))
        else:
            launches[-1][1].append(line)
    return launches


def trace_of(command):
    """What this command writes with --trace: [(launch, events), …]."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        subprocess.run([str(part) for part in [*command, "--no-check", "--trace", path]], check=True, stdout=subprocess.DEVNULL)
        return read(path)


def trace(step, build, *arguments):
    """What --trace writes: [(launch, events), …]."""
    return trace_of([build / "bin" / step, *arguments])


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


# ---- step 05: tiles of 64 queries and 64 keys, rows of 64 elements ----

FLASH = "05_flash_v2"
FLASH_TILE = 64
FLASH_LENGTH = 420  # of queries and keys: the last tile has 36
MASKS = {"dense": [], "causal": ["--causal"], "causal, window 150": ["--causal", "--window", "150"]}


def flash_events(build, variant, seq_q, seq_k, *flags):
    """What a warp of the last tile of queries did: of block 0."""
    shape = ["--heads", "1", "--seq-q", str(seq_q), "--seq-k", str(seq_k), "--dim", "64", *flags]
    ((_, events),) = trace(FLASH, build, "--variant", variant, *shape)
    return events


def copied_tile(event):
    """The tile of keys that a load or a cp.async takes from K or V; None for other instructions."""
    if "global" not in event or event["global"]["buffer"] not in ("k", "v"):
        return None
    return event["global"]["offsets"][0] // (FLASH_TILE * TILE_BYTES)


def walk(build, queries, mask):
    """The tiles of keys that the last of the first `queries` queries' tiles walks over, in order; those with a mask end in m. A round
    begins with the barrier that hands over a tile, and only with a mask it asks for NaNs."""
    keys = queries if "--causal" in mask else FLASH_LENGTH
    events = flash_events(build, "registers", queries, keys, *mask)
    tiles = dict.fromkeys(tile for tile in map(copied_tile, events) if tile is not None)
    barriers = [event["op"] for event in events if event["op"].startswith("bar.")][1:]  # the first one is Q's
    return " ".join(f"{tile}m" if op == "bar.red.or" else f"{tile}" for tile, op in zip(tiles, barriers, strict=True))


def flash_order(build, variant):
    """What the warp does, with the tile of keys that it is about, as [what, tile, how often]: K and V are loaded or copied; S, the mma of Q Kᵀ; X, the
    softmax's shuffles; P, the mma of P · V; W, a wait; B, a barrier; Q, the queries."""
    steps, tiles = [], dict.fromkeys("SXP", 4)  # the last tile that each was about: they go from 3 to 0
    doing = transposed = None
    for event in flash_events(build, variant, FLASH_TILE, 4 * FLASH_TILE):
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


# ---- step 06: tiles of 64 queries, 128 keys a block ----

BACKWARD = "06_backward"
QUERIES, KEYS = 64, 128
ROLES = {  # {variant: (head dim, {the name of a warp: its number})}
    "tuned_64": (64, {"each warp": 0}),
    "tuned_128": (128, {"P-warp": 0, "S-warp": 4}),
}
ROLE_TILES = 4  # of queries
COPIED = ("q0", "q1", "q2", "d_o0", "d_o1")
PRODUCTS = {("q", False): "S", ("d_o", False): "dP", ("d_o", True): "dV", ("q", True): "dK", ("k", True): "dQ"}  # by their B
ADDITIONS = 512  # queries and keys


def backward_events(build, variant, warp, *shape):
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
    for event in backward_events(build, "tuned_64", 0, *shape):
        rounds += event["op"] == "bar.sync"
        if event["op"] == "red.global.add":
            found.append((rounds, tile_of_queries(event, 4 * 32)))
    return list(map(list, dict.fromkeys(found)))


# ---- step 07: tiles of 128 queries and 64 keys ----

SPARSE = "07_block_sparse"
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


def sparse(build):
    """The contents of both files."""
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
        "lists": {"step": SPARSE, "tokens": LISTED, "queries": 128, "keys": 64, "rows": "tile of queries: [right, full, tiles of keys]", "masks": lists},
        "order": {"step": SPARSE, "item": "[head, first query, tiles of keys]", "work": work},
    }


def write(out, build):
    """Makes all files anew in the folder."""
    out.mkdir(parents=True, exist_ok=True)
    fragments = subprocess.run([str(build / "tests" / "fragments")], check=True, capture_output=True, text=True).stdout
    (out / "fragments.json").write_text(fragments)
    what = {"step": STEP, "shape": " ".join(SHAPE), "traced": "block 0, warp 0"}
    files = {
        "banks": {**what, "variants": {name: banks(name, build) for name in ("tensor_cores", "padding", "swizzle")}},
        "pipeline": {**what, "length": LENGTH, "key": KEY, "variants": {name: order(name, build) for name in ("swizzle", "pipeline", "tuned")}},
    }
    for name, content in files.items():
        text = json.dumps(content, indent=1)
        text = re.sub(r"\[\s+(\d[\d,\s]*\d)\s+\]", lambda found: "[" + " ".join(found[1].split()) + "]", text)  # a row a line
        (out / f"{STEP}_{name}.json").write_text(text + "\n")
    rows = range(FLASH_TILE, FLASH_LENGTH + FLASH_TILE, FLASH_TILE)
    walks = {name: [walk(build, min(row, FLASH_LENGTH), mask) for row in rows] for name, mask in MASKS.items()}
    flash = {
        "tiles": {"step": FLASH, "traced": "warp 0 of each tile of queries", "length": FLASH_LENGTH, "tile": FLASH_TILE, "walks": walks},
        "order": {"step": FLASH, "traced": "block 0, warp 0", "variants": {name: flash_order(build, name) for name in ("ldmatrix", "registers", "overlap")}},
    }  # fmt: skip
    for name, content in flash.items():
        text = re.sub(r"\[\s+([^][{}]+?)\s+\]", lambda found: "[" + " ".join(found[1].split()) + "]", json.dumps(content, indent=1))
        (out / f"{FLASH}_{name}.json").write_text(text + "\n")
    warps = {  # {variant: {warp: what it does}}
        variant: {
            name: role_order(backward_events(build, variant, warp, "--seq-q", ROLE_TILES * QUERIES, "--seq-k", KEYS, "--dim", dim), dim)
            for name, warp in of.items()
        }
        for variant, (dim, of) in ROLES.items()
    }
    added = {name: [additions(build, block, mask) for block in range(ADDITIONS // KEYS)] for name, mask in {"no mask": [], "causal": ["--causal"]}.items()}
    backward = {
        "roles": {"step": BACKWARD, "traced": "block 0; warps 0 and 4", "variants": warps},
        "additions": {"step": BACKWARD, "traced": "tuned_64, block 0, warp 0", "length": ADDITIONS, "queries": QUERIES, "keys": KEYS, "masks": added},
    }
    for name, content in backward.items():
        text = re.sub(r"\[\s+([^][{}]+?)\s+\]", lambda found: "[" + " ".join(found[1].split()) + "]", json.dumps(content, indent=1))
        (out / f"{BACKWARD}_{name}.json").write_text(text + "\n")
    for name, content in sparse(build).items():
        text = re.sub(r"\[\s+([^][{}]+?)\s+\]", lambda found: "[" + " ".join(found[1].split()) + "]", json.dumps(content, indent=1))
        (out / f"{SPARSE}_{name}.json").write_text(text + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "sim", help="the folder to write to (default results/sim)")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "sim", help="the sim preset's build folder")
    args = parser.parse_args()
    write(args.out, args.build)


if __name__ == "__main__":
    main()
