"""What step 99 tells the tools, the shapes at which it is measured among it. tools/measure/shapes.py says what each name is for."""

FIXED = {
    "smallest": ["--rows", "8", "--cols", "64"],
    "tour": ["--rows", "40", "--cols", "207"],
    "ragged": ["--rows", "5", "--cols", "345"],
}

PROFILED = {"1k": ["--rows", "1024", "--cols", "1024"]}

SANITIZED = [["--rows", "19", "--cols", "103"]]

BENCHED = {"1k": ["--rows", "1024", "--cols", "1024"]}

RUNGS_AT = SHOWN_AT = ["1k"]
