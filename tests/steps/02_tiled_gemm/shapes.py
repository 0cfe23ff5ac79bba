"""What step 02 tells the tools, the shapes at which it is measured among it. tools/measure/shapes.py says what each name is for."""

FIXED = {
    "smallest": ["--m", "64", "--n", "64", "--k", "64"],
    "tour": ["--m", "207", "--n", "1152", "--k", "384"],
    "ragged": ["--m", "131", "--n", "77", "--k", "88"],
}

REACHED = [
    ["--m", "131", "--n", "77", "--k", "88", "--ldc", "80"],  # rows of C begin at multiples of 16 bytes, and end elsewhere
    ["--m", "131", "--n", "77", "--k", "88", "--ldc", "80", "--dtype", "bf16"],
    ["--m", "131", "--n", "77", "--k", "88", "--dtype", "bf16"],
]

PROFILED = {"4k": ["--m", "4096", "--n", "4096", "--k", "4096"]}

SANITIZED = [
    ["--m", "131", "--n", "77", "--k", "88"],
    ["--batch", "2", "--m", "161", "--n", "289", "--k", "72", "--ldc", "291", "--dtype", "bf16"],
]

BENCHED = {
    "4k": ["--m", "4096", "--n", "4096", "--k", "4096"],
    "4k bf16": ["--m", "4096", "--n", "4096", "--k", "4096", "--dtype", "bf16"],
}

RUNGS_AT = SHOWN_AT = ["4k"]

FAST = ["pipeline", "tuned", "tuned_99k", "edges", "any_k"]
CONTENDERS = {
    "gemm_peers": {  # beside cuBLAS and the roof of mma.sync
        "4096³ fp16": (["--m", "4096", "--n", "4096", "--k", "4096"], []),
        "4096³ bf16": (["--m", "4096", "--n", "4096", "--k", "4096", "--dtype", "bf16"], FAST),
        "8192³ fp16": (["--m", "8192", "--n", "8192", "--k", "8192"], FAST),
        "8192³ bf16": (["--m", "8192", "--n", "8192", "--k", "8192", "--dtype", "bf16"], FAST),
        "4095 × 4095 × 4096 fp16": (["--m", "4095", "--n", "4095", "--k", "4096"], FAST),
        "4097 × 4097 × 4096 fp16": (["--m", "4097", "--n", "4097", "--k", "4096"], FAST),
        "4096 × 4096 × 4095 fp16": (["--m", "4096", "--n", "4096", "--k", "4095"], ["any_k"]),
    }
}
# At odd sizes cuBLAS is several times slower than at these cubes, which says little about our kernels.
SPEED_OVER = {"run": "gemm_peers", "share": "of_cublas", "of": "cuBLAS at 4096³ and 8192³", "shapes": "³"}
