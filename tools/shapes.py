"""The shapes at which each step is measured, in one place: for the profiler, the sanitizers, the benchmarks and their tests."""

# The steps that carry the whole layer (--layer).
LAYERED = ["01_naive_mha"]

# Three fixed shapes a step: where the simulator's counters are compared with Nsight Compute's.
# "tour" is the layer in data/minilm_layer (of step 02, the product that makes Q, K and V); "ragged" has extents that no tile
# divides, and is causal where a step knows that.
FIXED = {
    "01_naive_mha": {
        "smallest": ["--heads", "1", "--seq-q", "64", "--dim", "32"],
        "tour": ["--heads", "12", "--seq-q", "207", "--dim", "32"],
        "ragged": ["--heads", "6", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "203", "--dim", "40", "--causal"],
    },
    "02_tiled_gemm": {
        "smallest": ["--m", "64", "--n", "64", "--k", "64"],
        "tour": ["--m", "207", "--n", "1152", "--k", "384"],
        "ragged": ["--m", "131", "--n", "77", "--k", "88"],
    },
    "03_online_softmax": {
        "smallest": ["--rows", "8", "--cols", "64"],
        "tour": ["--rows", "2484", "--cols", "207", "--dtype", "fp32"],
        "ragged": ["--rows", "5", "--cols", "34567"],
    },
    "04_flash_v1": {
        "smallest": ["--heads", "1", "--seq-q", "64", "--dim", "32"],
        "tour": ["--heads", "12", "--seq-q", "207", "--dim", "32"],
        "ragged": ["--heads", "6", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "203", "--dim", "64", "--causal"],
    },
    "05_flash_v2": {
        "smallest": ["--heads", "1", "--seq-q", "64", "--dim", "32"],
        "tour": ["--heads", "12", "--seq-q", "207", "--dim", "32"],
        "ragged": ["--heads", "6", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "203", "--dim", "64", "--causal"],
    },
}

# Beyond these, what `make sass` runs, so that the simulator comes by every kernel and every line that accesses memory.
REACHED = {
    "02_tiled_gemm": [
        ["--m", "131", "--n", "77", "--k", "88", "--ldc", "80"],  # rows of C begin at multiples of 16 bytes, and end elsewhere
        ["--m", "131", "--n", "77", "--k", "88", "--ldc", "80", "--dtype", "bf16"],
        ["--m", "131", "--n", "77", "--k", "88", "--dtype", "bf16"],
    ],
    "03_online_softmax": [  # every size of file 5, with rows that begin and end between multiples of 16 bytes
        ["--rows", "3", "--cols", str(most // part + 1), "--dtype", dtype]
        for dtype, most in (("fp16", 65536), ("fp32", 32768))
        for part in (512, 256, 64, 16, 8, 4, 2, 1)
    ],
    "04_flash_v1": [
        ["--variant", variant, "--heads", "1", "--seq-q", "33", "--dim", dim, "--dtype", dtype]
        for variant in ("all", "wrong_update")  # which all leaves out
        for dim in ("32", "64", "128", "256")
        for dtype in ("fp32", "fp16", "bf16")
    ],
    "05_flash_v2": [  # tiles without a mask between two edges; every width of a copy to rows of every length; NaNs in V
        *(
            [*flags, "--dtype", dtype]
            for dtype in ("fp16", "bf16")
            for flags in [
                ["--heads", "1", "--seq-q", "70", "--seq-k", "300", "--dim", "64", "--window", "200"],
                *(["--heads", "1", "--seq-q", "20", "--seq-k", "140", "--dim", str(dim - less)]
                  for dim in (32, 64, 96, 128, 256) for less in (0, 1, 2, 4)),
                *(["--input", f"NANS{dim}", "--causal"] for dim in (32, 64, 96, 128, 256)),
                *(["--variant", variant, "--heads", "1", "--seq-q", "20", "--dim", str(dim), "--scale", "-0.1"]
                  for variant in ("tuned", "any_dim") for dim in (32, 64, 96, 128, 256)),
            ]
        ),
        *(["--heads", "1", "--seq-q", "40", "--dim", dim, "--dtype", "fp32"] for dim in ("64", "128", "256")),
    ],
}

# And one large shape for Nsight Compute: where memory is what a real model makes of it.
PROFILED = {
    "01_naive_mha": {"4k": ["--heads", "16", "--seq-q", "4096", "--dim", "64"]},
    "02_tiled_gemm": {"4k": ["--m", "4096", "--n", "4096", "--k", "4096"]},
    "03_online_softmax": {"16k × 4k": ["--rows", "16384", "--cols", "4096"]},
    "04_flash_v1": {"4k": ["--heads", "16", "--seq-q", "4096", "--dim", "64"]},
    "05_flash_v2": {"4k-d128": ["--heads", "16", "--seq-q", "4096", "--dim", "128"]},
}

# What the sanitizers run: small, because they slow a kernel down a hundredfold, and with every irregularity.
SANITIZED = {
    "01_naive_mha": [
        ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "113", "--dim", "40"],
        ["--heads", "3", "--seq-q", "203", "--seq-k", "113", "--dim", "33", "--causal"],
    ],
    "02_tiled_gemm": [
        ["--m", "131", "--n", "77", "--k", "88"],
        ["--batch", "2", "--m", "161", "--n", "289", "--k", "72", "--ldc", "291", "--dtype", "bf16"],
    ],
    "03_online_softmax": [
        ["--rows", "19", "--cols", "1003", "--ldx", "1005", "--ldy", "1013"],
        ["--rows", "3", "--cols", "34567", "--dtype", "fp32"],
    ],
    "04_flash_v1": [
        ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "113", "--dim", "64"],
        ["--heads", "3", "--seq-q", "203", "--seq-k", "113", "--dim", "96", "--causal", "--dtype", "bf16"],
    ],
    "05_flash_v2": [
        ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "203", "--dim", "64", "--causal"],
        ["--heads", "3", "--seq-q", "203", "--seq-k", "113", "--dim", "33", "--causal", "--dtype", "bf16"],
        ["--heads", "2", "--seq-q", "70", "--seq-k", "300", "--dim", "64", "--window", "200"],
    ],
}

# What the benchmarks run.
BENCHED = {
    "01_naive_mha": {
        "tour": ["--heads", "12", "--seq-q", "207", "--dim", "32"],
        "1k": ["--heads", "16", "--seq-q", "1024", "--dim", "64"],
        "1k causal": ["--heads", "16", "--seq-q", "1024", "--dim", "64", "--causal"],
        "4k": ["--heads", "16", "--seq-q", "4096", "--dim", "64"],
        "4k causal": ["--heads", "16", "--seq-q", "4096", "--dim", "64", "--causal"],
    },
    "02_tiled_gemm": {
        "4k": ["--m", "4096", "--n", "4096", "--k", "4096"],
        "4k bf16": ["--m", "4096", "--n", "4096", "--k", "4096", "--dtype", "bf16"],
    },
    "03_online_softmax": {
        "tour": ["--rows", "2484", "--cols", "207", "--dtype", "fp32"],
        "16k × 4k": ["--rows", "16384", "--cols", "4096"],
        "16k × 4k fp32": ["--rows", "16384", "--cols", "4096", "--dtype", "fp32"],
        "4k × 16k": ["--rows", "4096", "--cols", "16384"],
        "4k × 16k fp32": ["--rows", "4096", "--cols", "16384", "--dtype", "fp32"],
        "1k × 64k": ["--rows", "1024", "--cols", "65536"],
        "1k × 64k fp32": ["--rows", "1024", "--cols", "65536", "--dtype", "fp32"],
        "64 × 1M": ["--variant", "tuned", "--rows", "64", "--cols", "1048576"],  # the others take a second for each launch
        "64 × 1M fp32": ["--variant", "tuned", "--rows", "64", "--cols", "1048576", "--dtype", "fp32"],
    },
    "04_flash_v1": {
        "tour": ["--heads", "12", "--seq-q", "207", "--dim", "32"],
        "1k": ["--heads", "16", "--seq-q", "1024", "--dim", "64"],
        "4k": ["--heads", "16", "--seq-q", "4096", "--dim", "64"],
        "4k causal": ["--heads", "16", "--seq-q", "4096", "--dim", "64", "--causal"],
    },
    "05_flash_v2": {  # beside peers, and at more sizes: benchmarks/attention_peers.py
        "tour": ["--heads", "12", "--seq-q", "207", "--dim", "32"],
        "4k": ["--heads", "16", "--seq-q", "4096", "--dim", "64"],
        "4k causal": ["--heads", "16", "--seq-q", "4096", "--dim", "64", "--causal"],
        "4k-d128": ["--heads", "16", "--seq-q", "4096", "--dim", "128"],
        "4k-d128 causal": ["--heads", "16", "--seq-q", "4096", "--dim", "128", "--causal"],
    },
}

# What benchmarks/softmax_peers runs beside a copy of the same bytes: arguments, and the variants.
SOFTMAX_PEERS = {
    f"{rows} × {cols}, {dtype}": (
        ["--rows", str(rows), "--cols", str(cols), "--dtype", dtype],
        [*(["vectorised"] if cols <= 65536 else []), "held_parts", "in_turns", "tuned"],
    )
    for dtype in ("fp16", "fp32")
    for rows, cols in ((16384, 4096), (4096, 16384), (1024, 65536), (64, 1048576))
}

# What benchmarks/gemm_peers runs beside cuBLAS and the roof of mma.sync: arguments, and the variants (none: all).
FAST = ["pipeline", "tuned", "tuned_99k", "edges", "any_k"]
GEMM_PEERS = {
    "4096³ fp16": (["--m", "4096", "--n", "4096", "--k", "4096"], []),
    "4096³ bf16": (["--m", "4096", "--n", "4096", "--k", "4096", "--dtype", "bf16"], FAST),
    "8192³ fp16": (["--m", "8192", "--n", "8192", "--k", "8192"], FAST),
    "8192³ bf16": (["--m", "8192", "--n", "8192", "--k", "8192", "--dtype", "bf16"], FAST),
    "4095 × 4095 × 4096 fp16": (["--m", "4095", "--n", "4095", "--k", "4096"], FAST),
    "4097 × 4097 × 4096 fp16": (["--m", "4097", "--n", "4097", "--k", "4096"], FAST),
    "4096 × 4096 × 4095 fp16": (["--m", "4096", "--n", "4096", "--k", "4095"], ["any_k"]),
}
