"""What the simulator saw one warp do, condensed to what the book's pictures are drawn from: writes results/sim/*.json.

fragments.json                  which element of a matrix lies where in the registers of a warp (tests/fragments.cu)
02_tiled_gemm_banks.json        where 8 rows of a tile lie in shared memory, and what an ldmatrix of them costs
02_tiled_gemm_pipeline.json     the order of copies, barriers, ldmatrix and mma.sync
"""

import argparse
import json
import re
import subprocess
import tempfile
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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


def trace(step, build, *arguments):
    """What --trace writes: [(launch, events), …]."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        command = [build / "bin" / step, "--no-check", *arguments, "--trace", path]
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
        return read(path)


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "sim", help="the folder to write to (default results/sim)")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "sim", help="the sim preset's build folder")
    args = parser.parse_args()
    write(args.out, args.build)


if __name__ == "__main__":
    main()
