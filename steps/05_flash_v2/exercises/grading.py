"""What a kernel exercise of this step must pass, if it does not say otherwise (tools/learn/grading/table.py)."""

from tools.learn.grading.table import COMPLETIONS

SHAPES = [
    [],
    ["--causal"],
    ["--seq-q", "97", "--seq-k", "203", "--causal"],
    ["--seq-q", "200", "--seq-k", "70", "--causal"],
    ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "5", "--seq-k", "300"],
    ["--seq-q", "130", "--seq-k", "300", "--window", "180"],
    ["--seq-q", "150", "--window", "40", "--causal"],
]
SCHEDULES = COMPLETIONS
