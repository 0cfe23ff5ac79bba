"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.table import LOADS, Bound

BOUNDS = (
    Bound(LOADS, "merge_rows", "the merge loads {count} times, where {solution} would do: is each part read once?", most=1.5),
)
