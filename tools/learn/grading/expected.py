"""What each exercise that asks for numbers expects: predicted by the step's executable, counted by the simulator, or computed here."""

import json
import math

from tools.learn.grading import occupancy
from tools.learn.grading.run import BUILD, ROOT, counters_of, results_of
from tools.measure.profiling import ncu

MEASURED_BANDWIDTH = 4.25e12  # bytes/s of a copy on an H200, read plus written
SCHEDULERS = 4  # of a multiprocessor
MMA_CYCLES = 6.1  # of a scheduler, for an m16n8k16: docs/ceilings.md


def computed_roofs():
    """What exercise 4 of step 00 asks for, of the GPU in its machine.json: the rates that the clock allows, and what follows from two that
    were measured. The H200's own are printed on the page."""
    gpu = json.loads((ROOT / "steps" / "00_first_kernel" / "exercises" / "4_predict_the_roofs" / "machine.json").read_text())
    clock, copy, mma = gpu["sm_clock_mhz"] * 1e6, gpu["copy_bytes_per_second"], gpu["mma_sync_flops_per_second"]
    instructions = gpu["multiprocessors"] * SCHEDULERS * clock  # of warps, in a second
    return {
        "fma_tflops": instructions * 32 * 2 / 1e12,
        "mma_tflops": instructions / MMA_CYCLES * 2 * 16 * 8 * 16 / 1e12,
        "bytes_under_way": copy * gpu["latency_cycles"]["hbm"] / clock,
        "ridge_flop_per_byte": mma / copy,
        "transpose_microseconds": 2 * 4096 * 4096 * 2 / copy * 1e6,
    }


def predicted_bytes():
    """What exercise 1 of step 01 asks for, computed from the executable's own prediction."""
    shape = ["--heads", "8", "--seq-q", "300", "--dim", "40"]
    (result,) = results_of(BUILD / "bin" / "01_naive_mha", "--variant", "row_per_thread", *shape, "--no-check").values()
    scores, softmax, pv = result["kernels"]
    moved = [kernel["bytes_read"] + kernel["bytes_written"] for kernel in (scores, softmax, pv)]
    return {
        "S_bytes": scores["bytes_written"],
        "scores_flops": scores["flops"],
        "softmax_bytes": moved[1],
        "all_kernels_bytes": sum(moved),
        "floor_microseconds": sum(moved) / MEASURED_BANDWIDTH * 1e6,
    }


def counted_conflicts():
    """What exercise 1 of step 02 asks for: wavefronts of one ldmatrix.x4, and two numbers of the step's own kernels."""
    wavefronts = "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldsm.sum"
    conflicts = "sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum"
    rows = counters_of(BUILD / "exercises" / "exercise_02_tiled_gemm_1_predict_conflicts", "--variant", "all")
    # Not the 128, 144 and 128 with c ^ (r % 8) of the page.
    asked = [f"stride_{stride}" for stride in (48, 64, 80, 96, 112, 160, 192, 256)] + ["swizzled_64", "half_swizzled_128"]
    kernels = {}
    for variant in ("tensor_cores", "swizzle"):
        kernels |= counters_of(BUILD / "bin" / "02_tiled_gemm", "--variant", variant)
    return {
        **{name: rows[name][wavefronts] / rows[name]["smsp__sass_inst_executed_op_ldsm.sum"] for name in asked},
        "tensor_cores_conflicts": kernels["tensor_cores"][conflicts],
        "swizzle_wavefronts": kernels["swizzle"][wavefronts],
    }


def requested_bytes():
    """What exercise 1 of step 04 asks for: of Algorithm 1 in two sizes of shared memory, counted; and by how much the paper's blocks
    miss the budget at d = 96, where they have fewer rows than keys. The page has d = 128."""
    n, d = 320, 64
    numbers = {}
    for name, variant in (("48k", "scalar_48k"), ("227k", "scalar")):
        shape = ["--variant", variant, "--heads", "1", "--seq-q", str(n), "--dim", str(d), "--dtype", "fp16", "--no-check", "--counters"]
        (result,) = results_of(BUILD / "bin" / "04_flash_v1", *shape).values()
        exact = result["counters"][1]["exact"]
        load, store = (32 * exact[f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum"] for op in ("ld", "st"))
        numbers |= {f"passes_{name}": store // (n * (4 * d + 8)), f"bytes_{name}": load + store}  # a pass stores O, l and m once
    words, d = 227 * 1024 // 4, 96
    keys = math.ceil(words / (4 * d))
    rows = min(keys, d)
    return numbers | {"words_beyond_the_budget": 2 * (rows + keys) * d + rows * keys - words}


def predicted_transfers():
    """What exercise 1 of step 03 asks for: bytes as the executable predicts them, sectors of a load as the simulator counts them, and a
    merge by hand. In fp32: the page has fp16."""
    step = BUILD / "bin" / "03_online_softmax"
    large = results_of(step, "--variant", "all", "--dtype", "fp32", "--rows", "50", "--cols", "3000", "--no-check")
    moved = {
        variant: 200 * sum(kernel["bytes_read"] + kernel["bytes_written"] for kernel in result["kernels"])  # 10000 rows are 200 × 50
        for variant, result in large.items()
    }
    sectors = {}
    for variant, columns in (("three_pass", 4), ("warp_per_row", 1024), ("vectorised", 1024)):
        shape = ["--dtype", "fp32", "--rows", "64", "--cols", str(columns), "--no-check"]
        (counted,) = counters_of(step, "--variant", variant, *shape).values()
        requests, touched = (counted[f"l1tex__t_{what}_pipe_lsu_mem_global_op_ld.sum"] for what in ("requests", "sectors"))
        sectors[f"{variant}_sectors"] = touched / requests
    return {
        **{f"{variant}_bytes": moved[variant] for variant in ("three_pass", "online", "vectorised")},
        "vectorised_microseconds": moved["vectorised"] / MEASURED_BANDWIDTH * 1e6,
        **sectors,
        "merged_m": max(3, 5),
        "merged_l": 2 + math.exp(3 - 5) * (math.exp(-2) + math.exp(-1) + 1),
    }


def counted_tiles():
    """What exercise 1 of step 05 asks for, of one head with 256 queries and keys and rows of 64 elements."""
    shape = ["--heads", "1", "--seq-q", "256", "--dim", "64", "--no-check"]

    def counted(variant, *mask):
        (counters,) = counters_of(BUILD / "bin" / "05_flash_v2", "--variant", variant, *shape, *mask).values()
        return counters

    pipeline, registers = counted("pipeline"), counted("registers")
    mma = "sm__inst_executed_pipe_tensor_op_hmma.sum"
    return {
        "copied_bytes": 32 * pipeline["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"],
        "ldmatrix_file_4": pipeline["smsp__sass_inst_executed_op_ldsm.sum"],
        "ldmatrix_file_5": registers["smsp__sass_inst_executed_op_ldsm.sum"],
        "mma": registers[mma],
        "causal_mma": counted("registers", "--causal")[mma],
        "causal_window_64_mma": counted("registers", "--causal", "--window", "64")[mma],
        "barriers_file_5": registers["sass__inst_executed_per_opcode.BAR"],
    }


def blocks_of_tiles():
    """What exercise 5 of step 05 asks for: how many blocks of each tile a multiprocessor holds, on an H200 and on a GPU with 99 KB, and
    which tile the rule chooses. All from what tiles.json and docs/machine/ say."""
    asked = json.loads((ROOT / "steps" / "05_flash_v2" / "exercises" / "5_tiles_by_occupancy" / "tiles.json").read_text())
    numbers = {}
    for name, gpu in asked["gpus"].items():
        gpu = json.loads((ROOT / gpu).read_text()) if isinstance(gpu, str) else gpu
        blocks = {tile: occupancy.blocks(gpu, needs) for tile, needs in asked["tiles"].items()}
        rows = {tile: asked["tiles"][tile]["rows_of_a_warp"] for tile, count in blocks.items() if count >= 2}
        (chosen,) = (tile for tile in rows if rows[tile] == max(rows.values()))
        numbers |= {**{f"{tile}_{name}": count for tile, count in blocks.items()}, f"tile_{name}": chosen}
    return numbers


def backward_traffic():
    """What exercise 3 of step 06 asks for, of a causal shape with grouped heads and ragged lengths."""
    shape = ["--heads", "2", "--kv-heads", "1", "--seq-q", "136", "--seq-k", "184", "--dim", "32", "--dtype", "fp16", "--causal", "--no-check"]

    def counted(variant, *kernels):
        """The counters of these kernels, in launch order."""
        (result,) = results_of(BUILD / "bin" / "06_backward", "--variant", variant, *shape, "--counters").values()
        return [kernel for kernel in result["counters"] if ncu.base_name(kernel["kernel"]) in kernels]

    def total(kernels, metric):
        return sum(kernel["exact"][metric] for kernel in kernels)

    red, red_sectors = "smsp__sass_inst_executed_op_global_red.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum"
    writers, readers = ("probabilities", "row_products", "row_softmax_gradient"), ("over_queries", "over_keys")
    standard = counted("standard", *writers, *readers)
    written = 32 * total(standard[:3], "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum")
    # The three kernels behind them read P or dS by a warp an element, which all lanes share. No other load has 4 bytes.
    loads = [line for kernel in standard[3:] for line in kernel["lines"] if (line["space"], line["op"], line["bytes"]) == ("global", "load", 4)]
    recompute, one_kernel = counted("recompute", "backward_recompute"), counted("one_kernel", "backward_one_kernel")
    return {
        "standard_written_bytes": written,
        "standard_read_bytes": written * 2 // 3 + 4 * sum(line["requests"] for line in loads),  # row_softmax_gradient reads all of P and dP
        "recompute_added_bytes": 32 * total(recompute, red_sectors),
        "one_kernel_tiles": total(one_kernel, "sass__inst_executed_per_opcode.BAR") // (3 * 4),  # of each: three barriers, four warps
        "one_kernel_red": total(one_kernel, red),
        "fragment_order_red": total(counted("fragment_order", "backward_one_kernel"), red),
        "keys_32_added_bytes": 32 * total(counted("keys_32", "backward_keys_32"), red_sectors),
        "two_kernels_mma": total(counted("two_kernels", "gradient_of_keys", "gradient_of_queries"), "sm__inst_executed_pipe_tensor_op_hmma.sum"),
    }


def visited_tiles():
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


EXPECTED = {
    "00_first_kernel/4_predict_the_roofs": computed_roofs,
    "01_naive_mha/1_predict_bytes": predicted_bytes,
    "02_tiled_gemm/1_predict_conflicts": counted_conflicts,
    "05_flash_v2/1_predict_counts": counted_tiles,
    "05_flash_v2/5_tiles_by_occupancy": blocks_of_tiles,
    "03_online_softmax/1_predict_transfers": predicted_transfers,
    "04_flash_v1/1_predict_bytes": requested_bytes,
    "06_backward/3_predict_bytes": backward_traffic,
    "07_block_sparse/3_predict_time": visited_tiles,
}
