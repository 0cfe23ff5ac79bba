"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.table import SHARED, Bound, traffic, waits

BOUNDS = (
    *traffic("softmax", "the mend must not read a row more often"),
    waits("softmax", 1.25),
    Bound(SHARED, "softmax", "shared memory takes {count} wavefronts, where {solution} would do: a tree of halves is enough", most=1.2),
)
