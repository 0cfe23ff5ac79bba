"""What the grader looks at: tools/learn/grading/table.py."""

SIZES = [["7", "300"], ["1", "1"], ["3", "128"], ["40", "1003"], ["3", "5000"]]
