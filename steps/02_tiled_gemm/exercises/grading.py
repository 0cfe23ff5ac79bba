"""What a kernel exercise of this step must pass, if it does not say otherwise (tools/learn/grading/table.py)."""

from tools.learn.grading.table import COMPLETIONS

SHAPES = [
    ["--m", "128", "--n", "128", "--k", "64"],
    [],
    ["--m", "1", "--n", "1", "--k", "8"],
    ["--m", "130", "--n", "200", "--k", "136"],
    ["--m", "40", "--n", "265", "--k", "456", "--ldb", "464", "--ldc", "267"],
    ["--batch", "2", "--batch-a", "1", "--m", "97", "--n", "33", "--k", "320"],
]
SCHEDULES = COMPLETIONS
