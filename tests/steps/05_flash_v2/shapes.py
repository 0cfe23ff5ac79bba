"""What step 05 tells the tools, the shapes at which it is measured among it. tools/measure/shapes.py says what each name is for."""

FIXED = {
    "smallest": ["--heads", "1", "--seq-q", "64", "--dim", "32"],
    "tour": ["--heads", "12", "--seq-q", "207", "--dim", "32"],
    "ragged": ["--heads", "6", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "203", "--dim", "64", "--causal"],
    "dropout": ["--heads", "6", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "203", "--dim", "64", "--causal", "--dropout", "0.3"],
}

REACHED = [  # tiles without a mask between two edges; every width of a copy to rows of every length; NaNs in V
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
            *(["--variant", variant, "--heads", "1", "--seq-q", "20", "--dim", str(dim), "--scale", "-0.1"]
              for variant in ("folded_scale", "rows_32", "lazy_rescale") for dim in (32, 64, 128)),
            *(["--cu-seqlens", "SUMS300", "--heads", "1", "--dim", str(dim)] for dim in (32, 64, 96, 128, 256)),
            *(["--variant", "any_dim", "--cu-seqlens", "SUMS40", "--heads", "1", "--dim", str(dim - less)]
              for dim in (32, 64, 96, 128, 256) for less in (1, 2, 4)),
            *(["--variant", variant, "--cu-seqlens", "SUMS40", "--heads", "1", "--dim", str(dim), "--scale", "-0.1"]
              for variant in ("tuned", "any_dim") for dim in (32, 64, 96, 128, 256)),
            *(["--cu-seqlens", "SUMS11", "--input", f"NANS{dim}", "--causal"] for dim in (32, 64, 96, 128, 256)),
            *(["--dropout", "0.3", "--heads", "1", "--seq-q", "150", "--seq-k", "300", "--dim", str(dim), "--window", "200"]
              for dim in (32, 64, 96, 128, 256)),
            *(["--dropout", "0.3", "--variant", variant, "--heads", "1", "--seq-q", "20", "--dim", str(dim), "--scale", "-0.1", "--output", "OUT"]
              for variant in ("tuned", "any_dim") for dim in (32, 64, 96, 128, 256)),
            *(["--dropout", "0.3", "--variant", "any_dim", "--heads", "1", "--seq-q", "20", "--seq-k", "140", "--dim", str(dim - less)]
              for dim in (32, 64, 96, 128, 256) for less in (1, 2, 4)),
            *(["--dropout", "0.3", "--input", f"NANS{dim}", "--causal"] for dim in (32, 64, 96, 128, 256)),
            *(["--softcap", "5", "--alibi", "8", "--bias", "BIAS300", "--sinks", "SINKS1", "--lengths", "LENGTHS290", "--heads", "1", "--seq-q", "150",
               "--seq-k", "300", "--dim", str(dim), "--window", "200"] for dim in (32, 64, 96, 128, 256)),
            *(["--alibi", "8", "--heads", "1", "--seq-q", "70", "--seq-k", "300", "--dim", str(dim), "--window", "200"] for dim in (32, 64, 96, 128, 256)),
            *(["--softcap", "5", "--variant", variant, "--heads", "1", "--seq-q", "20", "--dim", str(dim), "--scale", "-0.1"]
              for variant in ("tuned", "any_dim") for dim in (32, 64, 96, 128, 256)),
            *(["--softcap", "5", "--variant", "any_dim", "--heads", "1", "--seq-q", "20", "--seq-k", "140", "--dim", str(dim - less)]
              for dim in (32, 64, 96, 128, 256) for less in (1, 2, 4)),
            *(["--softcap", "5", *flags, "--input", f"NANS{dim}", "--causal"] for flags in ([], ["--bias", "BIAS11"]) for dim in (32, 64, 96, 128, 256)),
        ]
    ),
    *([*flags, "--dim", dim, "--dtype", "fp32"]
      for dim in ("64", "128", "256") for flags in (["--heads", "1", "--seq-q", "40"], ["--heads", "1", "--cu-seqlens", "SUMS300"])),
    *(["--variant", "scalar", "--dropout", "0.3", "--heads", "1", *flags, "--dim", dim, "--dtype", dtype]
      for dtype in ("fp32", "fp16", "bf16") for dim in ("64", "128", "256") for flags in (["--seq-q", "40"], ["--cu-seqlens", "SUMS300"])),
]

PROFILED = {
    "4k dropout": ["--heads", "16", "--seq-q", "4096", "--dim", "64", "--dropout", "0.1"],
    "4k-d128": ["--heads", "16", "--seq-q", "4096", "--dim", "128"],
}

SANITIZED = [
    ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "203", "--dim", "64", "--causal"],
    ["--heads", "3", "--seq-q", "203", "--seq-k", "113", "--dim", "33", "--causal", "--dtype", "bf16"],
    ["--heads", "2", "--seq-q", "70", "--seq-k", "300", "--dim", "64", "--window", "200"],
    ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "203", "--dim", "64", "--causal", "--dropout", "0.3"],
    ["--heads", "2", "--seq-q", "150", "--seq-k", "113", "--dim", "127", "--dropout", "0.3", "--dtype", "bf16"],
]

BENCHED = {  # beside peers, and at more sizes: benchmarks/attention_peers.py
    "tour": ["--heads", "12", "--seq-q", "207", "--dim", "32"],
    "4k": ["--heads", "16", "--seq-q", "4096", "--dim", "64"],
    "4k causal": ["--heads", "16", "--seq-q", "4096", "--dim", "64", "--causal"],
    "4k-d128": ["--heads", "16", "--seq-q", "4096", "--dim", "128"],
    "4k-d128 causal": ["--heads", "16", "--seq-q", "4096", "--dim", "128", "--causal"],
}

RUNGS_AT = ["4k", "4k-d128"]
SHOWN_AT = ["tour", "4k"]

PEERS = ["attention_peers", "packed_peers", "dropout_peers", "cliffs"]
SPEED_OVER = {"run": "attention_peers", "others": ["FlashAttention-2", "cuDNN"]}
