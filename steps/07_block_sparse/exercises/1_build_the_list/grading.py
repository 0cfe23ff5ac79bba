"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.table import LOADS, STORES, Bound

BOUNDS = (
    Bound(STORES, "build_lists", "warps store {count} times, where {solution} would do: do 32 lanes store at once?", most=2),
    Bound(LOADS, "build_lists", "warps load {count} times, where {solution} would do: do 32 lanes look at 32 tiles at once?", most=2.5),
)
