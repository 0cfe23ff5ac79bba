"""What step 07 tells the tools, the shapes at which it is measured among it. tools/measure/shapes.py says what each name is for.

A shape with --backward is of the backward pass; variants have other names there.
"""

FORWARD_ENDS = "merge_parts"  # the last kernel of the forward pass that makes O and LSE for the backward pass

RAGGED = ["--heads", "6", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "203", "--dim", "64", "--causal"]
TYPES = ["--pattern", "random:0.5,sink:3t+local:70t,dense,empty", "--block-q", "128", "--block-k", "64"]

FIXED = {
    "smallest": ["--heads", "1", "--seq-q", "64", "--dim", "64"],
    "tour": ["--heads", "12", "--seq-q", "207", "--dim", "32", "--pattern", "band:2", "--block-q", "64", "--block-k", "64"],
    "ragged": RAGGED,
    "types": ["--heads", "4", "--kv-heads", "2", "--seq-q", "300", "--dim", "64", *TYPES],
    "smallest, backward": ["--backward", "--heads", "1", "--seq-q", "64", "--dim", "32"],
    "ragged, backward": ["--backward", *RAGGED],
    "types, backward": ["--backward", "--heads", "4", "--kv-heads", "2", "--seq-q", "300", "--dim", "128", *TYPES],
}

SPLIT = ["--pattern", "dense,empty,empty,empty,empty,empty,empty,empty", "--block-k", "64"]  # one head's rows and columns are long
SMALL_TYPES = ["--pattern", "sink:3t+local:70t,random:0.5", "--block-k", "64"]

REACHED = [  # every head dim and type; both heights of a tile; all types of heads; rows and columns that are split; NaNs in V and dO
    *(
        ["--variant", "balanced", *flags, *tile, "--dtype", dtype]
        for dtype in ("fp16", "bf16")
        for tile in (["--block-q", "128"], ["--block-q", "64"])
        for dim in ("32", "64", "96", "128")
        for flags in [
            ["--heads", "2", "--kv-heads", "1", "--seq-q", "150", "--seq-k", "300", "--dim", dim, "--window", "200", *SMALL_TYPES],
            ["--heads", "8", "--seq-q", "70", "--seq-k", "330", "--dim", dim, *SPLIT],
            ["--heads", "2", "--seq-q", "20", "--seq-k", "140", "--dim", dim, "--scale", "-0.1", *SMALL_TYPES],
            ["--input", f"NANS{dim}", "--causal", *SMALL_TYPES],
            *(["--input", f"LONGNANS{dim}", "--causal", *SPLIT, *option]
              for packed in ([], ["--cu-seqlens", "SUMS200"]) for option in (packed, [*packed, "--dropout", "0.3"])),
            ["--cu-seqlens", "SUMS300", "--heads", "2", "--dim", dim, *SMALL_TYPES],
            ["--cu-seqlens", "SUMS300", "--heads", "8", "--dim", dim, *SPLIT],
            ["--cu-seqlens", "SUMS11", "--input", f"NANS{dim}", "--causal", *SMALL_TYPES],
            ["--cu-seqlens", "SUMS40", "--heads", "2", "--dim", dim, "--scale", "-0.1", *SMALL_TYPES],
            ["--dropout", "0.3", "--heads", "2", "--kv-heads", "1", "--seq-q", "150", "--seq-k", "300", "--dim", dim, "--window", "200", *SMALL_TYPES],
            ["--dropout", "0.3", "--output", "OUT", "--heads", "8", "--seq-q", "70", "--seq-k", "330", "--dim", dim, *SPLIT],
            ["--dropout", "0.3", "--heads", "2", "--seq-q", "20", "--seq-k", "140", "--dim", dim, "--scale", "-0.1", *SMALL_TYPES],
            ["--dropout", "0.3", "--input", f"NANS{dim}", "--causal", *SMALL_TYPES],
            ["--dropout", "0.3", "--cu-seqlens", "SUMS300", "--heads", "2", "--dim", dim, *SMALL_TYPES],
            ["--dropout", "0.3", "--cu-seqlens", "SUMS300", "--heads", "8", "--dim", dim, *SPLIT],
            ["--dropout", "0.3", "--cu-seqlens", "SUMS40", "--heads", "2", "--dim", dim, "--scale", "-0.1", *SMALL_TYPES],
            ["--dropout", "0.3", "--cu-seqlens", "SUMS11", "--input", f"NANS{dim}", "--causal", *SMALL_TYPES],
        ]
    ),
    *(["--heads", "2", "--seq-q", "300", "--seq-k", "500", "--dim", dim, "--dtype", dtype, *flags]  # the rungs', which have no tokens
      for dtype in ("fp16", "bf16") for dim in ("64", "128")
      for flags in (["--pattern", "random:0.5,sink:1+local:1", "--block-k", "64"], ["--pattern", "band:1", "--causal", "--scale", "-0.1"])),
    *(["--input", f"NANS{dim}", "--dtype", dtype, *flags]
      for dtype in ("fp16", "bf16") for dim in ("64", "128") for flags in ([], ["--causal"])),
    *(["--variant", "tokens", *flags, *SMALL_TYPES, "--dtype", dtype]
      for dtype in ("fp16", "bf16") for dim in ("64", "128")
      for flags in [
          ["--heads", "2", "--kv-heads", "1", "--seq-q", "150", "--seq-k", "300", "--dim", dim, "--window", "200"],
          ["--heads", "2", "--seq-q", "20", "--seq-k", "140", "--dim", dim, "--scale", "-0.1"],
          ["--input", f"NANS{dim}", "--causal"],
      ]),
    *(["--backward", *flags, "--dim", dim, "--dtype", dtype]
      for dtype in ("fp16", "bf16") for dim in ("32", "64", "96", "128")
      for flags in [
          ["--heads", "2", "--kv-heads", "1", "--seq-q", "150", "--seq-k", "300", "--window", "200", *SMALL_TYPES],
          ["--heads", "2", "--kv-heads", "1", "--seq-q", "300", "--seq-k", "300", "--pattern", "random:0.5,dense"],  # full tiles
          ["--heads", "8", "--seq-q", "601", "--seq-k", "150", *SPLIT],
          ["--heads", "8", "--seq-q", "601", "--seq-k", "150", *SPLIT, "--dropout", "0.3"],
          *(["--heads", "8", "--cu-seqlens", "SUMS1200", *SPLIT, *dropout] for dropout in ([], ["--dropout", "0.3"])),
          ["--cu-seqlens", "SUMS300", "--heads", "2", *SMALL_TYPES],
          ["--cu-seqlens", "SUMS1200", "--heads", "1", "--pattern", "random:1"],
          ["--dropout", "0.3", "--heads", "2", "--kv-heads", "1", "--seq-q", "150", "--seq-k", "300", "--window", "200", *SMALL_TYPES],
          ["--dropout", "0.3", "--heads", "2", "--kv-heads", "1", "--seq-q", "300", "--seq-k", "300", "--pattern", "random:0.5,dense"],
          ["--dropout", "0.3", "--cu-seqlens", "SUMS300", "--heads", "2", *SMALL_TYPES],
      ]),
    *(["--backward", *flags, "--input", f"NANS{dim}", *SMALL_TYPES, "--dtype", dtype]
      for dtype in ("fp16", "bf16") for dim in (32, 64, 96, 128)
      for flags in (["--causal"], ["--cu-seqlens", "SUMS11"], ["--dropout", "0.3", "--causal"], ["--dropout", "0.3", "--cu-seqlens", "SUMS11"])),
]

SANITIZED = [
    ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "203", "--dim", "64", "--causal", *TYPES],
    ["--heads", "3", "--seq-q", "203", "--seq-k", "113", "--dim", "96", "--causal", "--dtype", "bf16", "--pattern", "band:1,empty", "--block-q", "64", "--block-k", "64"],
    ["--heads", "2", "--seq-q", "170", "--seq-k", "300", "--dim", "64", "--window", "200", "--pattern", "random:0.5", "--block-k", "64"],
    ["--heads", "8", "--seq-q", "70", "--seq-k", "601", "--dim", "128", *SPLIT],
    ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "203", "--dim", "32", "--causal", *TYPES, "--dropout", "0.3"],
    ["--backward", "--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "203", "--dim", "64", "--causal", *TYPES],
    ["--backward", "--heads", "3", "--seq-q", "203", "--seq-k", "113", "--dim", "96", "--causal", "--dtype", "bf16", "--pattern", "band:1,empty", "--block-q", "64", "--block-k", "64"],
    ["--backward", "--heads", "8", "--seq-q", "601", "--seq-k", "150", "--dim", "128", *SPLIT],
    ["--backward", "--heads", "2", "--seq-q", "97", "--seq-k", "280", "--dim", "128", "--pattern", "random:0.5", "--dropout", "0.3", "--dtype", "bf16"],
]

BENCHED = {  # beside peers, and with other masks: benchmarks/sparse_peers.py
    "16k": ["--heads", "32", "--seq-q", "16384", "--dim", "64", "--pattern", "random:0.25"],
    "16k-d128": ["--heads", "16", "--seq-q", "16384", "--dim", "128", "--pattern", "random:0.25"],
    "16k, blocks of 64": ["--heads", "32", "--seq-q", "16384", "--dim", "64", "--pattern", "random:0.25", "--block-q", "64", "--block-k", "64"],
    "16k-d128, blocks of 64": ["--heads", "16", "--seq-q", "16384", "--dim", "128", "--pattern", "random:0.25", "--block-q", "64", "--block-k", "64"],
    "16k backward": ["--backward", "--heads", "32", "--seq-q", "16384", "--dim", "64", "--pattern", "random:0.25"],
    "16k-d128 backward": ["--backward", "--heads", "16", "--seq-q", "16384", "--dim", "128", "--pattern", "random:0.25"],
}

RUNGS_AT = SHOWN_AT = ["16k", "16k-d128", "16k backward", "16k-d128 backward"]

PROFILED = {name: BENCHED[name] for name in ("16k", "16k-d128 backward")}

PEERS = ["sparse_peers", "cliffs"]
SPEED_OVER = {"run": "sparse_peers", "others": ["FlexAttention"]}  # whose tiles the names of contenders give, too
