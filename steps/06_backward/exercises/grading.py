"""What a kernel exercise of this step must pass, if it does not say otherwise (tools/learn/grading/table.py)."""

from tools.learn.grading.table import SEEDS

SHAPES = [
    [],
    ["--causal"],
    ["--seq-q", "1", "--seq-k", "3", "--dim", "1"],
    ["--heads", "4", "--kv-heads", "2", "--seq-q", "29", "--seq-k", "53", "--dim", "33", "--causal"],
    ["--seq-q", "40", "--seq-k", "17", "--dim", "64", "--causal"],
    ["--batch", "2", "--seq-q", "30", "--seq-k", "41", "--window", "9", "--scale", "0.7"],
]
SCHEDULES = SEEDS
