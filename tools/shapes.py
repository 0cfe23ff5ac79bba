"""The shapes at which each step is measured, in one place: for the profiler, the sanitizers, the benchmarks and their tests."""

# The steps that carry the whole layer (--layer).
LAYERED = ["01_naive_mha"]

# Three fixed shapes a step: where the simulator's counters are compared with Nsight Compute's.
# "tour" is the layer in data/minilm_layer; "ragged" is causal, with lengths that no tile divides.
FIXED = {
    "01_naive_mha": {
        "smallest": ["--heads", "1", "--seq-q", "64", "--dim", "32"],
        "tour": ["--heads", "12", "--seq-q", "207", "--dim", "32"],
        "ragged": ["--heads", "6", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "203", "--dim", "40", "--causal"],
    },
}

# Beyond these, one large shape for Nsight Compute: where memory is what a real model makes of it.
PROFILED = {"01_naive_mha": {"4k": ["--heads", "16", "--seq-q", "4096", "--dim", "64"]}}

# What the sanitizers run: small, because they slow a kernel down a hundredfold, and with every irregularity.
SANITIZED = {
    "01_naive_mha": [
        ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "97", "--seq-k", "113", "--dim", "40"],
        ["--heads", "3", "--seq-q", "203", "--seq-k", "113", "--dim", "33", "--causal"],
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
}
