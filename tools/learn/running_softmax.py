"""What an online softmax knows after each score of a real row: writes results/sim/03_online_softmax_row.json.

The row is a query's scores in one head of data/minilm_layer. The step's variant `online` runs on a matrix whose row j holds the first j + 1
of them, and −∞ behind: y's largest element is then 1 / l of a softmax that has come as far as score j, and where it lies is the maximum.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
LAYER = ROOT / "data" / "minilm_layer"


def scores():
    """[heads, queries, keys] of the layer, scaled, in fp32."""
    about = json.loads((LAYER / "layer.json").read_text())
    x, weight, bias = (np.load(LAYER / f"{name}.npy").astype(np.float64) for name in ("x", "in_proj_weight", "in_proj_bias"))
    tokens, width = x.shape[1:]
    qkv = (x[0] @ weight.T + bias).reshape(tokens, 3, about["heads"], width // about["heads"])
    q, k = qkv[:, 0].swapaxes(0, 1), qkv[:, 1].swapaxes(0, 1)
    return (q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])).astype(np.float32)


def most_moved(rows):
    """(head, query) of the row whose running maximum moves most often; the first of them."""
    moves = (np.diff(np.maximum.accumulate(rows, axis=-1), axis=-1) > 0).sum(axis=-1)
    return tuple(int(n) for n in np.unravel_index(moves.argmax(), moves.shape))


def softmax_so_far(row, build):
    """(m, l) after each score, as the step computes them."""
    so_far = np.where(np.tri(row.size, dtype=bool), row, np.float32(-np.inf))
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "x.npy", so_far)
        flags = ["--input", folder, "--output", folder, "--variant", "online", "--dtype", "fp32"]
        subprocess.run([str(build / "bin" / "03_online_softmax"), *flags], check=True, stdout=subprocess.DEVNULL)
        y = np.load(Path(folder) / "y.npy")
    return row[y.argmax(axis=1)], 1 / y.max(axis=1)


def write(out, build):
    """Makes the file anew in the folder."""
    rows = scores()
    head, query = most_moved(rows)
    row = rows[head, query]
    m, l = softmax_so_far(row, build)
    numbers = {name: [float(f"{value:.5g}") for value in values] for name, values in (("scores", row), ("m", m), ("l", l))}
    content = {"layer": "data/minilm_layer", "head": head, "query": query, "variant": "online", **numbers}
    out.mkdir(parents=True, exist_ok=True)
    text = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
    (out / "03_online_softmax_row.json").write_text(f"{{\n{text}\n}}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "sim", help="the folder to write to (default results/sim)")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "sim", help="the sim preset's build folder")
    args = parser.parse_args()
    write(args.out, args.build)


if __name__ == "__main__":
    main()
