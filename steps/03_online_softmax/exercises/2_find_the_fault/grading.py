"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.table import SHUFFLES, Bound, traffic, waits

BOUNDS = (
    *traffic("softmax", "an online softmax reads a row twice"),
    waits("softmax", 2),
    Bound(SHUFFLES, "softmax", "{count} shuffles are made, the solution's {solution}: the lanes of a warp merge by shuffles", most=1.1, least=0.9),
)
