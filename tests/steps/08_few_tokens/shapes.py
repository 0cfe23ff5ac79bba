"""What step 08 tells the tools, the shapes at which it is measured among it. tools/measure/shapes.py says what each name is for."""

FIXED = {
    "smallest": ["--m", "1", "--n", "64", "--k", "64"],
    "tour": ["--m", "7", "--n", "1152", "--k", "384", "--bias"],
    "ragged": ["--m", "5", "--n", "77", "--k", "88", "--channels", "2", "--weight-channels", "1", "--dtype-a", "fp32", "--activation", "gelu"],
}

# Each switch of a kernel by m, both types, all types of C, and every activation.
REACHED = [
    ["--m", "1", "--n", "70", "--k", "520", "--dtype-c", "fp32", "--activation", "relu", "--bias"],
    ["--m", "2", "--n", "70", "--k", "264", "--dtype", "bf16", "--dtype-a", "fp32", "--activation", "silu", "--bias"],
    ["--m", "4", "--n", "70", "--k", "264", "--dtype", "bf16", "--dtype-c", "fp16"],
    ["--m", "16", "--n", "70", "--k", "264"],
    # Both counts of pairs at a time, with tokens of either type. experts_tiled takes no tokens of fp32.
    *[
        ["--m", m, "--n", "70", "--k", "1104", "--experts", "4", "--top", "2", "--dtype", dtype, *more]
        for m, dtype, more in [("8", "fp16", []), ("20", "bf16", []), ("8", "bf16", ["--dtype-a", "fp32"]), ("20", "fp16", ["--dtype-a", "fp32"])]
    ],
]

LARGE = ["--n", "4096", "--k", "4096"]
PROFILED = {"4k, 1 token": ["--m", "1", *LARGE], "4k, 16 tokens": ["--m", "16", *LARGE]}

SANITIZED = [
    ["--m", "5", "--n", "77", "--k", "88", "--samples", "2", "--weight-samples", "1", "--bias", "--activation", "silu"],
    ["--m", "1", "--n", "289", "--k", "264", "--dtype", "bf16", "--ldc", "291"],
    ["--m", "19", "--n", "77", "--k", "88", "--experts", "8", "--top", "2", "--bias", "--activation", "gelu"],
]

BENCHED = {f"4k, {m} token{'s' if m > 1 else ''}": ["--m", str(m), *LARGE] for m in (1, 8, 16)}

RUNGS_AT = ["4k, 1 token"]

CONTENDERS = {
    "few_tokens_peers": {  # beside cuBLAS and a kernel that only reads
        f"{n} × {k}, {m} token{'s' if m > 1 else ''}": (
            ["--m", str(m), "--n", str(n), "--k", str(k), "--rounds", "9"],
            ["tensor_cores", "row_groups", "cluster", "tuned", "tuned_alone"],
        )
        for n, k in ((4096, 4096), (14336, 4096), (4096, 14336), (896, 896), (4864, 896))
        for m in (1, 8, 16)
    }
}
