"""What step 03 tells the tools, the shapes at which it is measured among it. tools/measure/shapes.py says what each name is for."""

FIXED = {
    "smallest": ["--rows", "8", "--cols", "64"],
    "tour": ["--rows", "2484", "--cols", "207", "--dtype", "fp32"],
    "ragged": ["--rows", "5", "--cols", "34567"],
}

REACHED = [  # every size of `vectorised`, with rows that begin and end between multiples of 16 bytes
    ["--rows", "3", "--cols", str(most // part + 1), "--dtype", dtype]
    for dtype, most in (("fp16", 65536), ("fp32", 32768))
    for part in (512, 256, 64, 16, 8, 4, 2, 1)
]

PROFILED = {"16k × 4k": ["--rows", "16384", "--cols", "4096"]}

SANITIZED = [
    ["--rows", "19", "--cols", "1003", "--ldx", "1005", "--ldy", "1013"],
    ["--rows", "3", "--cols", "34567", "--dtype", "fp32"],
]

BENCHED = {
    "tour": ["--rows", "2484", "--cols", "207", "--dtype", "fp32"],
    "16k × 4k": ["--rows", "16384", "--cols", "4096"],
    "16k × 4k fp32": ["--rows", "16384", "--cols", "4096", "--dtype", "fp32"],
    "4k × 16k": ["--rows", "4096", "--cols", "16384"],
    "4k × 16k fp32": ["--rows", "4096", "--cols", "16384", "--dtype", "fp32"],
    "1k × 64k": ["--rows", "1024", "--cols", "65536"],
    "1k × 64k fp32": ["--rows", "1024", "--cols", "65536", "--dtype", "fp32"],
    "64 × 1M": ["--variant", "tuned", "--rows", "64", "--cols", "1048576"],  # the others take a second for each launch
    "64 × 1M fp32": ["--variant", "tuned", "--rows", "64", "--cols", "1048576", "--dtype", "fp32"],
}

RUNGS_AT = ["16k × 4k"]
SHOWN_AT = ["tour", "16k × 4k"]

CONTENDERS = {
    "softmax_peers": {  # beside a copy of the same bytes
        f"{rows} × {cols}, {dtype}": (
            ["--rows", str(rows), "--cols", str(cols), "--dtype", dtype],
            [*(["vectorised"] if cols <= 65536 else []), "held_parts", "in_turns", "tuned"],
        )
        for dtype in ("fp16", "fp32")
        for rows, cols in ((16384, 4096), (4096, 16384), (1024, 65536), (64, 1048576))
    }
}
SPEED_OVER = {"run": "softmax_peers", "share": "of_copy", "of": "a copy of the same bytes", "shapes": ""}
