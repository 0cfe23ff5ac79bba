"""What the grader looks at: tools/learn/grading/table.py."""

NO_MORE_WORK = True
