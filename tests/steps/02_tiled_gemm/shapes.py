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

# At odd sizes cuBLAS is several times slower than at these cubes, which says little about our kernels.
SPEED_OVER = {"run": "gemm_peers", "share": "of_cublas", "of": "cuBLAS at 4096³ and 8192³", "shapes": "³"}
