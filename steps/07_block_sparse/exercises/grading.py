"""What a kernel exercise of this step must pass, if it does not say otherwise (tools/learn/grading/table.py)."""

from tools.learn.grading.table import COMPLETIONS

SHAPES = [
    [],
    ["--seq-q", "300", "--causal", "--pattern", "band:2", "--block-k", "64"],
    ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "150", "--seq-k", "270",
     "--pattern", "random:0.4,dense,sink:1+local:1,empty", "--block-k", "64"],
    ["--seq-q", "97", "--seq-k", "203", "--causal", "--pattern", "sink:3t+local:70t,dense"],
    ["--heads", "7", "--seq-q", "70", "--seq-k", "330", "--pattern", "dense,empty,empty,empty,empty,empty,empty"],
    ["--heads", "1", "--seq-q", "256", "--seq-k", "2304", "--causal", "--window", "2049"],  # the 33rd tile of a row, and the last, are partial
    ["--heads", "1", "--seq-q", "2048", "--pattern", "full-row:0.05"],
]
SCHEDULES = COMPLETIONS
