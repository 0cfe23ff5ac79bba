"""Fails if CI skipped a test that is not in the list below, or if a test asked for a program that is not there.

    python3 .ci/skips.py LOG [--none]      --none: nothing at all may be skipped

LOG is what ctest wrote of its last run (build/sim/Testing/Temporary/LastTest.log), or what pytest printed, with its reasons for skips
(-rs).
"""

import re
import sys

# (what the line says, why CI may skip it)
MAY_SKIP = [
    ("could not import 'torch'|this Python has no PyTorch", "CI installs no PyTorch, which is larger than all else together; make gpu-check runs these tests"),
    ("a CPU has no streams and no graphs|only the gpu build", "CI has no GPU; make gpu-check runs them"),
    ("rows far apart take 9 GB of a GPU's memory", "CI has no GPU; make gpu-check runs it"),
    ("no nvcc", "the bare machine has none; .ci/run runs these tests again on a machine that has it"),
    ("no strace", "only who writes records of long proofs needs it, CI reads them"),
    ("no clang-format: make lint installs it", "the same"),
    ("bits: another processor or C library wrote the list", "the list's bits are those of the machine that wrote it; the rest of the test has run"),
]
SKIPPED = re.compile(r"^SKIPPED \[\d+\] (.*)$|^(Test (?:Skipped|Not Run).*)$", re.MULTILINE)
MISSING = re.compile(r"^.*(?:command not found|: not found|No such file or directory: '[^/']+')$", re.MULTILINE)


def faults(log, may_skip):
    """What is wrong, a line each: skips without a reason in the list, and programs that were not found."""
    skipped = [match[1] or match[2] for match in SKIPPED.finditer(log)]
    unknown = [f"skipped, and not in .ci/skips.py: {line}" for line in skipped if not any(re.search(says, line) for says, _ in may_skip)]
    return unknown + [f"a program is missing: {line.strip()}" for line in MISSING.findall(log)]


if __name__ == "__main__":
    with open(sys.argv[1], errors="replace") as log:
        found = faults(log.read(), [] if "--none" in sys.argv else MAY_SKIP)
    print("\n".join(found) if found else "No test was skipped but those that may be, and no program was missing.")
    sys.exit(bool(found))
