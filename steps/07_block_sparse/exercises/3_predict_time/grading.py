"""What the grader expects, and how it comes by that: to be read after your own answer."""

from tools.learn.grading.run import BUILD, results_of


def expected():
    """What exercise 3 of step 07 asks for: tiles by the mma that multiply them, of masks one by one."""
    mma = "sm__inst_executed_pipe_tensor_op_hmma.sum"

    def counted(queries, *mask):
        shape = ["--variant", "tokens", "--heads", "1", "--seq-q", str(queries), "--dim", "64", "--no-check", *mask]
        (result,) = results_of(BUILD / "bin" / "07_block_sparse", *shape, "--counters").values()
        return result["counters"][-1]["exact"]

    of_tile = counted(128, "--seq-k", "64")[mma]
    masks = {"band": "band:2", "sink": "sink:1+local:2", "tokens": "sink:50t+local:100t", "dense": "dense"}
    heads = {name: counted(512, "--causal", "--pattern", mask) for name, mask in masks.items()}
    tiles = {f"{name}_tiles": head[mma] // of_tile for name, head in heads.items()}
    all_tiles, rows = sum(tiles.values()), sum(head["launch__grid_size"] for head in heads.values())  # a block has a row
    short = {"band": ["band:1"], "sink": ["sink:1+local:1"], "tokens": ["sink:32t+local:32t"], "causal": ["dense", "--causal"]}
    all_live = counted(197)[mma]
    p = {name: counted(197, "--pattern", *mask)[mma] / all_live for name, mask in short.items()}
    least = max(p, key=p.get)
    return {
        **tiles,
        "mma": all_tiles * of_tile,
        "list_bytes": 4 * all_tiles + 16 * rows,
        "p": all_tiles / (len(masks) * tiles["dense_tiles"]),
        "saves_least_of_197": least,
        "its_p": p[least],
    }
