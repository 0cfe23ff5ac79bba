"""What the grader looks at: tools/learn/grading/table.py."""

SIZES = [["1000"], ["1"], ["128"], ["100003"]]
