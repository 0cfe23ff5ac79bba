"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.table import traffic, waits

BOUNDS = (*traffic("mended_algorithm_1", "a pass over the queries moves O once"), waits("mended_algorithm_1", 1.0))
