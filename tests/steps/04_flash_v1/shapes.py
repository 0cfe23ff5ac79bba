"""What step 04 tells the tools, the shapes at which it is measured among it. tools/measure/shapes.py says what each name is for."""

FIXED = {
    "smallest": ["--heads", "1", "--seq-q", "64", "--dim", "32"],
    "tour": ["--heads", "12", "--seq-q", "207", "--dim", "32"],
    "ragged": ["--heads", "6", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "203", "--dim", "64", "--causal"],
}

REACHED = [
    ["--variant", variant, "--heads", "1", "--seq-q", "33", "--dim", dim, "--dtype", dtype]
    for variant in ("all", "wrong_update")  # which all leaves out
    for dim in ("32", "64", "128", "256")
    for dtype in ("fp32", "fp16", "bf16")
]

PROFILED = {"4k": ["--heads", "16", "--seq-q", "4096", "--dim", "64"]}

SANITIZED = [
    ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "113", "--dim", "64"],
    ["--heads", "3", "--seq-q", "203", "--seq-k", "113", "--dim", "96", "--causal", "--dtype", "bf16"],
]

BENCHED = {
    "tour": ["--heads", "12", "--seq-q", "207", "--dim", "32"],
    "1k": ["--heads", "16", "--seq-q", "1024", "--dim", "64"],
    "4k": ["--heads", "16", "--seq-q", "4096", "--dim", "64"],
    "4k causal": ["--heads", "16", "--seq-q", "4096", "--dim", "64", "--causal"],
}

RUNGS_AT = ["4k"]
SHOWN_AT = ["tour", "4k"]
