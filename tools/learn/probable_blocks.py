"""A sparse mask from real Q and K: of every row of blocks the fewest blocks that hold a share of the probability.

    tools/learn/probable_blocks.py --input data/minilm_long --out DIR [--block-q 64 --block-k 64] [--share 0.95]

Writes block_mask.npy and head_type.npy to DIR, beside copies of Q, K and V: then `07_block_sparse --input DIR` runs under that mask. A head that
needs all its blocks is dense. No causal mask.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np

DENSE, BLOCK_SPARSE = 0, 1  # of head_type.npy


def probabilities(q, k):
    """softmax(Q Kᵀ / √d) in double precision: q [..., heads, seq_q, d], k [..., kv_heads, seq_k, d] -> [..., heads, seq_q, seq_k]."""
    q, k = q.astype(np.float64), np.repeat(k.astype(np.float64), q.shape[-3] // k.shape[-3], axis=-3)
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def in_blocks(p, block_q, block_k):
    """The probability of each block: p [..., seq_q, seq_k] -> [..., query blocks, key blocks].

    The sum over the block's keys, as the mean over the block's queries: a row of blocks sums to 1. The last blocks may be partial.
    """
    rows = np.arange(0, p.shape[-2], block_q)
    sums = np.add.reduceat(np.add.reduceat(p, rows, axis=-2), np.arange(0, p.shape[-1], block_k), axis=-1)
    return sums / np.diff(rows, append=p.shape[-2])[:, None]


def fewest_blocks(of_blocks, share):
    """Which blocks are live, bool: of each row of in_blocks() the most probable ones, the fewest that hold the share together."""
    order = np.argsort(-of_blocks, axis=-1, kind="stable")
    ordered = np.take_along_axis(of_blocks, order, axis=-1)
    before = np.cumsum(ordered, axis=-1) - ordered  # what the blocks ahead of it hold
    live = np.zeros(of_blocks.shape, bool)
    np.put_along_axis(live, order, before < share, axis=-1)
    return live


def write_mask(folder, live):
    """live [batch or 1, heads, query blocks, key blocks], bool -> block_mask.npy and head_type.npy in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "block_mask.npy", live)
    types = np.where(live.all(axis=(0, 2, 3)), DENSE, BLOCK_SPARSE)
    np.save(folder / "head_type.npy", types.astype(np.int32))


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1")
    return value


def share_of(text):
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share: more than 0, and at most 1")
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, required=True, help="folder with q.npy, k.npy and v.npy, [batch, heads, seq, dim]")
    parser.add_argument("--out", type=Path, required=True, help="folder for the mask, and for copies of the three")
    parser.add_argument("--block-q", type=positive, default=128, help="queries of a block")
    parser.add_argument("--block-k", type=positive, default=128, help="keys of a block")
    parser.add_argument("--share", type=share_of, default=0.95, help="of the probability of every row of blocks (default 0.95)")
    parser.add_argument("--mask-only", action="store_true", help="no copies of the three")
    args = parser.parse_args()
    q, k = (np.load(args.input / f"{name}.npy") for name in "qk")
    live = fewest_blocks(in_blocks(probabilities(q, k), args.block_q, args.block_k), args.share)
    write_mask(args.out, live)
    if not args.mask_only and args.out.resolve() != args.input.resolve():
        for name in "qkv":
            shutil.copyfile(args.input / f"{name}.npy", args.out / f"{name}.npy")
    print(f"blocks of {args.block_q} × {args.block_k}, {100 * args.share:g} % of the probability: {live.sum()} of {live.size} blocks live")
    for head, blocks in enumerate(live.swapaxes(0, 1)):
        print(f"  head {head:2}: {blocks.sum():4} of {blocks.size}")


if __name__ == "__main__":
    main()
