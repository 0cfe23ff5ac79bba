"""What step 06 tells the tools, the shapes at which it is measured among it. tools/measure/shapes.py says what each name is for."""

FORWARD = "flash_v2"  # its kernel makes O and LSE
COUNTED_ON = "h100"  # where repair_rows was counted first; the times are an H200's
RENAMED = {"repair_non_finite": "repair_rows"}

FIXED = {
    "smallest": ["--heads", "1", "--seq-q", "64", "--dim", "32"],
    "tour": ["--heads", "12", "--seq-q", "207", "--dim", "32"],
    "ragged": ["--heads", "6", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "203", "--dim", "64", "--causal"],
    "dropout": ["--heads", "6", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "203", "--dim", "64", "--causal", "--dropout", "0.3"],
}

REACHED = [  # every head dim and type; tiles without a mask between two edges; rows of any length; NaNs, so that rows are repaired
    *(
        [*flags, "--dtype", dtype]
        for dtype in ("fp16", "bf16")
        for flags in [
            *(["--heads", "2", "--kv-heads", "1", "--seq-q", "150", "--seq-k", "300", "--dim", dim, "--window", "200"]
              for dim in ("32", "64", "96", "128")),
            *(["--heads", "1", "--seq-q", "70", "--seq-k", "140", "--dim", dim, "--causal"] for dim in ("33", "64", "128", "200", "256")),
            *(["--input", f"NANS{dim}", "--causal"] for dim in (32, 64, 96, 128)),
            *(["--cu-seqlens", "SUMS300", "--heads", "1", "--dim", dim] for dim in ("33", "64", "96", "128", "200", "256", "32")),
            *(["--cu-seqlens", "SUMS11", "--input", f"NANS{dim}"] for dim in (32, 64, 96, 128)),
            *(["--dropout", "0.3", "--heads", "2", "--kv-heads", "1", "--seq-q", "150", "--seq-k", "300", "--dim", dim, "--window", "200"]
              for dim in ("32", "64", "96", "128")),
            *(["--dropout", "0.3", "--input", f"NANS{dim}", "--causal", "--output", "OUT"] for dim in (32, 64, 96, 128)),
            # Of any_dim: rows at multiples of 16 bytes, and others, for each number of padded columns.
            *(["--variant", variant, "--heads", "1", "--seq-q", "40", "--seq-k", "70", "--dim", str(dim), "--causal"]
              for variant in ("any_dim", "tuned_80") for dim in (24, 31, 56, 63, 88, 95, 120, 127, 184, 191, 248, 255)),
            *(["--variant", "any_dim", *option, "--heads", "1", "--dim", str(dim)]
              for dim in (24, 31, 56, 63, 88, 95, 120, 127, 184, 191, 248, 255)
              for option in (["--cu-seqlens", "SUMS40"], ["--dropout", "0.3", "--seq-q", "40", "--seq-k", "70"])),
            *(["--variant", variant, "--input", f"NANS{dim}", *option] for dim in (24, 56, 88, 120, 184, 248)
              for variant, option in (("any_dim", []), ("any_dim", ["--cu-seqlens", "SUMS11"]), ("any_dim", ["--dropout", "0.3"]), ("tuned_80", []))),
        ]
    ),
    *([*flags, "--dim", dim, "--dtype", "fp32"]
      for dim in ("64", "128", "256") for flags in (["--heads", "1", "--seq-q", "40"], ["--heads", "1", "--cu-seqlens", "SUMS300"])),
    *(["--variant", "recompute", "--dropout", "0.3", *flags, "--dtype", dtype]
      for dtype in ("fp32", "fp16", "bf16") for dim in ("64", "128", "256")
      for flags in (["--heads", "1", "--seq-q", "40", "--dim", dim], ["--heads", "1", "--cu-seqlens", "SUMS300", "--dim", dim],
                    ["--input", f"NANS{dim}"], ["--input", f"NANS{dim}", "--cu-seqlens", "SUMS11"])),
]

PROFILED = {
    "4k dropout": ["--heads", "16", "--seq-q", "4096", "--dim", "64", "--dropout", "0.1"],
    "4k-d128": ["--heads", "16", "--seq-q", "4096", "--dim", "128"],
}

SANITIZED = [
    ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "203", "--dim", "64", "--causal"],
    ["--heads", "3", "--seq-q", "203", "--seq-k", "113", "--dim", "33", "--causal", "--dtype", "bf16"],
    ["--heads", "2", "--seq-q", "70", "--seq-k", "300", "--dim", "64", "--window", "200"],
    ["--heads", "2", "--seq-q", "97", "--seq-k", "280", "--dim", "128", "--causal"],
    ["--heads", "2", "--seq-q", "150", "--seq-k", "140", "--dim", "96"],
    ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "203", "--dim", "64", "--causal", "--dropout", "0.3"],
    ["--heads", "2", "--seq-q", "97", "--seq-k", "280", "--dim", "128", "--dropout", "0.3", "--dtype", "bf16"],
    ["--heads", "2", "--seq-q", "70", "--seq-k", "113", "--dim", "127", "--dropout", "0.3"],
]

BENCHED = {  # beside peers, and with more tokens: benchmarks/backward_peers.py
    "tour": FIXED["tour"],
    "4k": ["--heads", "32", "--seq-q", "4096", "--dim", "64"],
    "4k causal": ["--heads", "32", "--seq-q", "4096", "--dim", "64", "--causal"],
    "4k-d128": ["--heads", "16", "--seq-q", "4096", "--dim", "128"],
    "4k-d128 causal": ["--heads", "16", "--seq-q", "4096", "--dim", "128", "--causal"],
}

RUNGS_AT = ["4k", "4k-d128"]
SHOWN_AT = ["tour", "4k"]

PEERS = ["backward_peers", "packed_peers", "dropout_peers", "training", "cliffs"]
SPEED_OVER = {"run": "backward_peers", "others": ["FlashAttention-2", "cuDNN"]}
