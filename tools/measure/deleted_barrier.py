"""What the simulator says when one barrier of the first kernel is missing. Writes results/sim/deleted_barrier.txt.

The barrier is the first __syncthreads() of row_sum, in steps/00_first_kernel/first_kernel.cu. It is deleted in a copy, which the commands of
build/sim compile and link; the project stays as it is. The program adds up one row, so that one block runs, and the reports are the same on
every machine. The file holds each report once. The program repeats them for each launch, in the order in which its threads meet the fault.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "cmake")]
import plain_cuda

from tools.mutate.rebuild import Rebuild, UsageError

STEP = "00_first_kernel"
SOURCE = f"steps/{STEP}/first_kernel.cu"
KERNEL, BARRIER = "void row_sum(", "__syncthreads();"
ARGUMENTS = ("1000", "1", "1000")  # elements of the vectors; rows and columns of the matrix
KINDS = ("race: read after write", "uninitialised read", "race: write after read")  # of reports, in the order of the file
OUT = ROOT / "results" / "sim" / "deleted_barrier.txt"


def place(text):
    """Where in the source the barrier stands."""
    return text.index(BARRIER, text.index(KERNEL))


def without_it(text):
    """The source without the barrier; its lines keep their numbers."""
    begin = place(text)
    return text[:begin] + text[begin + len(BARRIER) :]


def commands():
    """What a reader types to see it: the deletion, and the run."""
    text = (ROOT / SOURCE).read_text()
    line = text.count("\n", 0, place(text)) + 1
    return [f"sed -i '{line}s/{BARRIER}//' {SOURCE}", f"make sim STEP=00 && build/sim/bin/{STEP} {' '.join(ARGUMENTS)}"]


def run(folder):
    """(exit status, stdout, stderr) of the program without the barrier, which is made in that folder."""
    build = ROOT / "build" / "sim"
    unit = Rebuild(build, build / "steps" / f"{STEP}.cu", f"bin/{STEP}")
    source, compiled, program = folder / "first_kernel.cu", folder / "first_kernel.o", folder / STEP
    made = plain_cuda.rewrite(without_it((ROOT / SOURCE).read_text()), ROOT / SOURCE)  # reports name the original
    source.write_text(f'#include "{plain_cuda.HEADER}"\n{made}')
    error = unit.compile(source, compiled) or unit.link(compiled, program)
    if error:
        raise UsageError(f"{SOURCE} without its barrier: {error}")
    done = subprocess.run([program, *ARGUMENTS], capture_output=True, text=True, check=False, env={}, timeout=60)
    return done.returncode, done.stdout, done.stderr


def reports(stderr):
    """The simulator's reports, each once, in the order of KINDS."""
    found = dict.fromkeys(re.split(r"^(?=simulator: )", stderr, flags=re.MULTILINE)[1:])
    return sorted(found, key=lambda report: next((at for at, kind in enumerate(KINDS) if kind in report), len(KINDS)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT, help="the file to write (default results/sim/deleted_barrier.txt)")
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        try:
            status, _, stderr = run(Path(folder))
        except UsageError as error:
            parser.error(str(error))
    if status != 1:
        sys.exit(f"the program without its barrier ended with status {status}:\n{stderr}")
    out.write_text("".join(reports(stderr)))


if __name__ == "__main__":
    main()
