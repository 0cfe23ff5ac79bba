"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.table import LOADS, Bound

SHAPES = [
    ["--m", "8", "--n", "16", "--k", "32"],
    [],
    ["--m", "1", "--n", "1", "--k", "8"],
    ["--m", "5", "--n", "77", "--k", "88", "--bias", "--activation", "gelu"],
    ["--m", "7", "--n", "33", "--k", "136", "--lda", "144", "--ldc", "35", "--dtype-c", "fp32"],
    ["--m", "3", "--n", "40", "--k", "200", "--channels", "2", "--weight-channels", "1"],
]
BOUNDS = (Bound(LOADS, "product", "warps load {count} times, where {solution} would do: how many neighbouring k of a token does a lane need?", most=1.0),)
