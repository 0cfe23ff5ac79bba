"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.kernels import ALL
from tools.learn.grading.table import IN_FLIGHT, LDMATRIX, Bound, waits

BOUNDS = (
    Bound(
        IN_FLIGHT,
        ALL,
        "{count} copies are in flight behind the waits, the solution's {solution}: a wait for everything ends the pipeline. How many groups may stay?",
        least=0.95,
    ),
    waits("gemm", 1.0),
    Bound(LDMATRIX, "gemm", "{count} ldmatrix are issued where {solution} would do", most=1.0),
)
