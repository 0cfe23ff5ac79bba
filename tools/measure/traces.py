"""What the simulator saw, condensed to what the book's pictures are drawn from: writes results/sim/*.json.

fragments.json        which element of a matrix lies where in the registers of a warp (tests/programs/fragments.cu)
NN_name_WHAT.json     what a step's tests/steps/NN_name/traces.py finds in traces of its kernels: observations(build) has all of a step's, by name
"""

import argparse
import json
import re
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # for the steps' files


def read(path):
    """A file that --trace wrote: [(launch, events), …]."""
    launches = []
    for line in map(json.loads, path.read_text().splitlines()):
        if "kernel" in line:
            launches.append((line, []))
        else:
            launches[-1][1].append(line)
    return launches


def trace_of(command):
    """What this command writes with --trace: [(launch, events), …]."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        subprocess.run([str(part) for part in [*command, "--no-check", "--trace", path]], check=True, stdout=subprocess.DEVNULL)
        return read(path)


def trace(step, build, *arguments):
    """What --trace writes: [(launch, events), …]."""
    return trace_of([build / "bin" / step, *arguments])


def as_text(observed):
    """JSON with each innermost list on one line."""
    return re.sub(r"\[\s+([^][{}]+?)\s+\]", lambda found: "[" + " ".join(found[1].split()) + "]", json.dumps(observed, indent=1)) + "\n"


def write(out, build):
    """Makes all files anew in the folder."""
    out.mkdir(parents=True, exist_ok=True)
    fragments = subprocess.run([str(build / "tests" / "fragments")], check=True, capture_output=True, text=True).stdout
    (out / "fragments.json").write_text(fragments)
    for path in sorted(ROOT.glob("tests/steps/*/traces.py")):
        for name, observed in runpy.run_path(str(path))["observations"](build).items():
            (out / f"{path.parent.name}_{name}.json").write_text(as_text(observed))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "sim", help="the folder to write to (default results/sim)")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "sim", help="the sim preset's build folder")
    args = parser.parse_args()
    write(args.out, args.build)


if __name__ == "__main__":
    main()
