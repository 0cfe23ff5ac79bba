"""What step 09 tells the tools, the shapes at which it is measured among it. tools/measure/shapes.py says what each name is for."""

FIXED = {
    "smallest": ["--batch", "1", "--heads", "1", "--kv-heads", "1", "--seq-q", "1", "--seq-k", "16", "--dim", "64"],
    "tour": ["--batch", "1", "--heads", "12", "--kv-heads", "12", "--seq-q", "7", "--seq-k", "207", "--dim", "32", "--causal"],
    "ragged": ["--batch", "3", "--heads", "6", "--kv-heads", "2", "--seq-q", "4", "--seq-k", "1003", "--dim", "64", "--causal"],
}

# Every tile, in both types: whole items, clusters, and items that are cut; rows that see different keys, with and without a NaN in V.
DIMS = ("32", "64", "128", "256")
SHARED = [
    ["--batch", "1", "--heads", "4", "--kv-heads", "1", "--seq-q", "1", "--seq-k", "2100"],
    ["--batch", "22", "--heads", "6", "--kv-heads", "6", "--seq-q", "1", "--seq-k", "20"],
    ["--batch", "20", "--heads", "8", "--kv-heads", "8", "--seq-q", "3", "--seq-k", "300", "--causal"],
]
REACHED = [
    *([*flags, "--dim", dim, "--dtype", dtype] for dtype in ("fp16", "bf16") for dim in DIMS for flags in SHARED),
    *(["--input", f"NANS{dim}", "--causal", "--dtype", dtype] for dtype in ("fp16", "bf16") for dim in DIMS),
    *(["--variant", "any_dim", "--seq-q", "1", "--seq-k", "40", "--dim", dim, "--dtype", dtype] for dtype in ("fp32", "fp16", "bf16") for dim in ("33", "128", "256")),
]

# 8 key/value heads, each with 4 query heads.
GROUPS = ["--heads", "32", "--kv-heads", "8", "--dim", "128"]
PROFILED = {
    "16 × 4k keys": ["--batch", "16", "--seq-q", "1", "--seq-k", "4096", *GROUPS],
    "1 × 32k keys": ["--batch", "1", "--seq-q", "1", "--seq-k", "32768", *GROUPS],
}

SANITIZED = [
    ["--batch", "2", "--heads", "6", "--kv-heads", "2", "--seq-q", "4", "--seq-k", "1003", "--dim", "64", "--causal"],
    ["--batch", "20", "--heads", "8", "--kv-heads", "8", "--seq-q", "1", "--seq-k", "300", "--dim", "128", "--dtype", "bf16"],
    ["--batch", "1", "--heads", "14", "--kv-heads", "2", "--seq-q", "7", "--seq-k", "256", "--dim", "64", "--window", "100"],
]

# A benchmark repeats a launch over the same arrays: of these, L2 keeps no part that matters.
BENCHED = {
    "16 × 4k keys": PROFILED["16 × 4k keys"],
    "64 × 1k keys": ["--batch", "64", "--seq-q", "1", "--seq-k", "1000", *GROUPS],
    "1 × 32k keys": PROFILED["1 × 32k keys"],
}
RUNGS_AT = ["16 × 4k keys", "1 × 32k keys"]
SHOWN_AT = ["16 × 4k keys", "1 × 32k keys"]

# µs that were aimed at: those of prototypes on an H100. Of tuned, whose launches wait for each other, and of tuned_dependent; None: not measured.
AIMED = {
    "batch 16, 4096 keys": (89.4, 86.9),
    "batch 16, 32768 keys": (686, None),
    "batch 1, 32768 keys": (47.3, 46.5),
    "batch 1, 4096 keys": (9.6, 7.8),
    "batch 64, 1000 keys": (89.9, 87.1),
    "batch 4, 131072 keys": (692, 690),
    "batch 16, 4096 keys, 4 tokens": (91.8, 89.4),
}
LONG = "batch 16, 32768 keys"


def decoding_claims(cells):
    """[(what, "at most" or "at least", target, {cell: value})] of what decoding_peers measured: {cell: its JSON}."""
    measured = {cell: {one["name"]: one for one in report["contenders"]} for cell, report in cells.items()}

    def over_aim(variant, column):
        aims = {cell: both[column] or both[0] for cell, both in AIMED.items()}
        return {cell: 1e3 * measured[cell][variant]["burst_ms"]["median"] / us for cell, us in aims.items() if variant in measured.get(cell, {})}

    def speed_over(other, variant, which):
        of = {cell: measured[cell][variant]["of"] for cell in which if variant in measured.get(cell, {})}
        return {cell: ratios[other]["median"] for cell, ratios in of.items() if other in ratios}

    best = "best of PyTorch's"
    others = [cell for cell in measured if cell != LONG]
    return [
        ("`tuned_dependent`: time over what was aimed at, the most", "at most", 1.03, over_aim("tuned_dependent", 1)),
        ("`tuned`: the same", "at most", 1.03, over_aim("tuned", 0)),
        (f"`tuned`: speed over the best of PyTorch's, but at {LONG}, the least", "at least", 1.0, speed_over(best, "tuned", others)),
        (f"`tuned` at {LONG}: the same", "at least", 0.99, speed_over(best, "tuned", [LONG])),
    ]


PEERS = ["decoding_peers"]
CLAIMS = {"decoding_peers": decoding_claims}  # the program asks for it by itself (tools.measure.shapes.claims): gpu_check.py does for CONTENDERS only
SPEED_OVER = {"run": "decoding_peers", "others": ["best of PyTorch's"]}
