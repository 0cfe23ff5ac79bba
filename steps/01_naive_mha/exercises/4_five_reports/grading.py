"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.table import SHARED, Bound, traffic, waits

BOUNDS = (
    *traffic("attention", "the mend must not load more"),
    waits("attention", 1.3, "half a warp shares a row: who must wait for whom?"),
    Bound(SHARED, "attention", "shared memory takes {count} wavefronts, where {solution} would do", most=1.1),
)
