"""What the grader expects, and how it comes by that: to be read after your own answer."""

from tools.learn.grading.run import BUILD, results_of

READ_RATE = 4.39e12  # of the page: bytes/s
SEQUENCES, KEYS, HEADS, KV_HEADS, DIM = 40, 3000, 40, 8, 128
WARP_KEYS, WARPS, CLUSTER = 16, 4, 8  # of a tile; of a block of `cluster`; its blocks
WAYS = {"dependent_stream": "rows", "dependent_cluster": "cluster", "dependent_seams": "stream"}  # by the last kernel


def counted(variant, sequences, keys, dim=64, heads=KV_HEADS, kv_heads=KV_HEADS):
    """[(kernel, its counts)] of a variant. A group has as many items with one head as with five."""
    shape = {"batch": sequences, "heads": heads, "kv-heads": kv_heads, "seq-q": 1, "seq-k": keys, "dim": dim}
    flags = [word for name, value in shape.items() for word in (f"--{name}", value)]
    (result,) = results_of(BUILD / "bin" / "09_decoding", "--variant", variant, *flags, "--no-check", "--counters").values()
    kernels = [cost["kernel"] for cost in result["kernels"]]
    return list(zip(kernels, (kernel["exact"] for kernel in result["counters"]), strict=True))


def grid(variant, sequences, keys, dim=64):
    return counted(variant, sequences, keys, dim)[0][1]["launch__grid_size"]


def expected():
    """What exercise 1 of step 09 asks for: grids and tiles as the simulator counts them, the others computed."""

    def mma(keys):  # of one item
        return counted("whole_rows", 1, keys, heads=1, kv_heads=1)[0][1]["sm__inst_executed_pipe_tensor_op_hmma.sum"]

    kv_bytes = 2 * SEQUENCES * KV_HEADS * KEYS * DIM * 2  # K and V, fp16
    items, blocks = grid("packed_heads", SEQUENCES, WARP_KEYS), grid("whole_rows", SEQUENCES, WARP_KEYS, dim=32)
    parts = grid("split_kv", 1, KEYS)
    # Of many items, two tiles are enough: more of them change nothing, because no cluster is small enough.
    chosen = {sequences: counted("tuned", sequences, keys, dim=32) for sequences, keys in ((40, 200), (33, 200), (3, KEYS))}
    return {
        "kv_bytes": kv_bytes,
        "least_microseconds": kv_bytes / READ_RATE * 1e6,
        "items": items,
        "whole_rows_blocks": blocks,
        "whole_rows_tiles": -(-items // blocks) * mma(KEYS) // mma(WARPS * WARP_KEYS),
        "split_kv_splits": parts // KV_HEADS,
        "parts_bytes": parts * HEADS // KV_HEADS * DIM * 4,
        "cluster_keys": (CLUSTER * WARPS - 1) * WARP_KEYS + 1,  # one for the last warp of the last tile
        **{f"way_of_{sequences}": WAYS[kernels[-1][0]] for sequences, kernels in chosen.items()},
        "cluster_of_3": chosen[3][0][1]["launch__grid_size"] // (3 * KV_HEADS),
    }
