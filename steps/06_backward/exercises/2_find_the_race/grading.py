"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.table import ADDITIONS, BARRIERS, Bound, traffic, waits

BOUNDS = (
    waits("gradients", 1.25),
    Bound(BARRIERS, "gradients", "warps pass {count} barriers, and {solution} must be: which blocks leave early?", least=1.0),
    Bound(ADDITIONS, "gradients", "warps add {count} times to dQ's sums, the solution's {solution} times", most=1.0, least=1.0),
    *traffic("gradients", "only the last block reads the sums"),
)
