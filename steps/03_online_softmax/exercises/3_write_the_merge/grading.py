"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.table import SHUFFLES, Bound, traffic, waits

BOUNDS = (
    *traffic("softmax", "with ⊕ a row is read twice"),
    waits("softmax", 1.0),
    Bound(SHUFFLES, "softmax", "{count} shuffles are made, the solution's {solution}: merge() needs none of its own", most=1.0, least=1.0),
)
