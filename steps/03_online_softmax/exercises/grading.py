"""What a kernel exercise of this step must pass, if it does not say otherwise (tools/learn/grading/table.py)."""

from tools.learn.grading.table import SEEDS

SHAPES = [
    [],
    ["--rows", "3", "--cols", "1"],
    ["--rows", "5", "--cols", "37"],
    ["--rows", "7", "--cols", "1003", "--ldx", "1007", "--ldy", "1005"],
    ["--rows", "2", "--cols", "20000"],
    ["--input", "steps/03_online_softmax/exercises/3_write_the_merge/masked_rows"],  # one is −∞ throughout, others in part
]
SCHEDULES = SEEDS
