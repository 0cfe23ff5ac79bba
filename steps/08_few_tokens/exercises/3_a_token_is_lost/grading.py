"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.table import LOADED, SHARED_BYTES, Bound

SHAPES = [
    ["--m", "64", "--n", "16", "--k", "32", "--experts", "1", "--top", "1"],
    [],
    ["--m", "1", "--n", "1", "--k", "8", "--experts", "5", "--top", "1"],
    ["--m", "193", "--n", "77", "--k", "88", "--experts", "2", "--top", "2", "--bias", "--activation", "gelu"],
    ["--m", "65", "--n", "20", "--k", "40", "--experts", "1", "--top", "1"],
    ["--m", "150", "--n", "33", "--k", "136", "--lda", "144", "--experts", "8", "--top", "4"],
]
BOUNDS = (
    Bound(LOADED, "product", "{count} sectors are read, where {solution} would do: how many pairs does the block have each time it reads the weights?", most=1.2),
    Bound(SHARED_BYTES, "product", "a block has {count} bytes of shared memory, the solution's {solution}: the list keeps its 64 places", most=1.01),
)
