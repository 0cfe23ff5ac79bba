"""The IO theorem, counted: what attention asks of device memory, by formula and by the simulator. Writes results/sim/io_theorem.json.

One head, fp16, no mask. Bytes are those that a kernel requests, in sectors of 32: caches are not asked. Standard attention is two products
of step 02 and a softmax of step 03 on the same lengths; flash v1 is Algorithm 1 alone, without the kernels around it.
"""

import argparse
import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
E = 2  # bytes of an element; O, m and l are in fp32
STANDARD, V1, V2 = "standard", "flash v1", "flash v2"
MEMORIES = {48: "scalar_48k", 99: "scalar_99k", 227: "scalar"}  # KiB of shared memory: step 04's variant
V2_ROWS = 32  # Br of step 05's variant "scalar"
SIZES = [(512, 64), (768, 64), (1024, 64), (1024, 32), (512, 128)]  # N and d
SECTORS = (
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",  # Nsight Compute has cp.async among these
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
)


@dataclass(frozen=True)
class Point:
    """What is counted: an algorithm, N = seq_q = seq_k, d, and for v1 the shared memory of its blocks, in KiB."""

    algorithm: str
    n: int
    d: int
    kib: int | None = None


def points():
    """The sweep."""
    return [
        *(Point(algorithm, n, d) for algorithm in (STANDARD, V2) for n, d in SIZES),
        *(Point(V1, n, d, kib) for kib in MEMORIES for n, d in SIZES),
    ]


def ceil_div(a, b):
    return -(-a // b)


def block_sizes(words, d):
    """(Br, Bc) of step 04's budget: K_j with a word more in each row, V_j, Q_i, O_i, S_ij, m_i and l_i; Bc a multiple of 8, Br = min(Bc, d)."""
    fitting = [(0, 0)]
    for keys in range(8, words, 8):
        rows = min(keys, d)
        if keys * (2 * d + 1) + rows * 2 * d + rows * keys + 2 * rows > words:
            return fitting[-1]
        fitting.append((rows, keys))


def v1_bytes(n, d, kib):
    """K and V once; for each block of keys Q, and O, m and l both ways."""
    passes = ceil_div(n, block_sizes(kib * 256, d)[1])
    return 2 * n * d * E + passes * n * (d * E + 8 * d + 16)


def v2_bytes(n, d, rows=V2_ROWS):
    """K and V for each block of queries; Q, O and LSE once. (The kernel's LSE goes out a row at a time, so each asks for a sector.)"""
    return 2 * ceil_div(n, rows) * n * d * E + 2 * n * d * E + 4 * n


def standard_bytes(n, d):
    """S = Q·Kᵀ in tiles of 128 × 256, P = softmax(S), O = P·V in tiles of 128 × 128, whose stores fill half sectors."""
    scores = n * d * E * (ceil_div(n, 256) + ceil_div(n, 128)) + n * n * E
    softmax = 2 * n * n * E
    pv = n * n * E * ceil_div(d, 128) + d * n * E * ceil_div(n, 128) + 2 * n * d * E
    return scores + softmax + pv


def predicted(point):
    if point.algorithm == V1:
        return v1_bytes(point.n, point.d, point.kib)
    return {STANDARD: standard_bytes, V2: v2_bytes}[point.algorithm](point.n, point.d)


def requested(build, step, variant, kernel, **shape):
    """The bytes that one kernel of a variant requests, counted."""
    flags = [word for name, value in shape.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [build / "bin" / step, "--variant", variant, "--dtype", "fp16", *flags, "--no-check", "--counters", "--json", report]
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        (result,) = json.loads(report.read_text())["results"]
    (counters,) = [launch["exact"] for launch in result["counters"] if launch["kernel"].partition("<")[0].endswith(f"::{kernel}")]
    return 32 * sum(counters[name] for name in SECTORS)


def counted(point, build):
    """The same as predicted(), by the simulator."""
    n, d = point.n, point.d
    if point.algorithm == STANDARD:
        return (
            requested(build, "02_tiled_gemm", "tuned", "tuned_gemm", m=n, n=n, k=d)
            + requested(build, "03_online_softmax", "vectorised", "vectorised_softmax", rows=n, cols=n)
            + requested(build, "02_tiled_gemm", "pipeline", "pipelined_gemm", m=n, n=d, k=n)
        )
    step, variant, kernel = ("05_flash_v2", "scalar", "flash_scalar")
    if point.algorithm == V1:
        step, variant, kernel = ("04_flash_v1", MEMORIES[point.kib], "algorithm_1")
    return requested(build, step, variant, kernel, heads=1, seq_q=n, dim=d)


def write(out, build):
    """Counts every point of the sweep: some minutes."""
    rows = [{**vars(point), "predicted": predicted(point), "counted": counted(point, build)} for point in points()]
    lines = ",\n ".join(json.dumps(row) for row in rows)
    out.write_text(f'{{"element_bytes": {E}, "points": [\n {lines}\n]}}\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "sim" / "io_theorem.json")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "sim", help="the sim preset's build folder")
    args = parser.parse_args()
    write(args.out, args.build)


if __name__ == "__main__":
    main()
