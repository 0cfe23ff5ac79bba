"""Step 08's table of tiles, held to a sweep: every variant, tile and peer for 1 to 256 tokens, at five sizes, in three pairs of types.

    python benchmarks/few_tokens_sweep.py --json results/h100/few_tokens_sweep.json

One call of few_tokens_peers --sweep for each cell. The file is written again after each of them; a cell that is there is not measured
again, so a sweep can go on in a second call. A file of another GPU or of other sources is refused. tests/steps/08_few_tokens/choice.cpp
reads it. Exit status 1: a cell could not be measured, or a result was wrong.
"""

import argparse
import json
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tools.measure.gpu_check import machine, sm_clock

SIZES = list(runpy.run_path(str(ROOT / "tests/steps/08_few_tokens/shapes.py"))["AIMED"])
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TYPES = {"fp16": ["--dtype", "fp16"], "bf16": ["--dtype", "bf16"], "fp32 tokens": ["--dtype", "fp16", "--dtype-a", "fp32"]}


def cells():
    """{name: flags}; step 02 takes no tokens of fp32, and the other variants take 16 tokens at most."""
    return {
        f"{n} × {k}, {m} token{'s' if m > 1 else ''}, {types}": ["--n", str(n), "--k", str(k), "--m", str(m), *flags]
        for n, k in SIZES
        for m in TOKENS
        for types, flags in TYPES.items()
        if m <= 16 or types != "fp32 tokens"
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--commit", help="of the sources, where the repository's history is not at hand")
    args = parser.parse_args()
    report = {"machine": {**machine(args.commit), "command": "benchmarks/few_tokens_sweep.py"}, "shapes": {}}
    if args.json.exists():
        begun = json.loads(args.json.read_text())
        for field in ("name", "commit"):
            if begun["machine"][field] != report["machine"][field]:
                parser.error(f"{args.json} has {field} {begun['machine'][field]}, this is {report['machine'][field]}: name another file")
        report["shapes"] = begun["shapes"]
    failed, one = [], args.json.with_suffix(".one")
    for name, flags in cells().items():
        if name in report["shapes"]:
            continue
        done = subprocess.run([args.build / "bin" / "few_tokens_peers", *flags, "--sweep", "--rounds", "9", "--json", one], check=False)
        if done.returncode != 0:
            failed.append(name)
            one.unlink(missing_ok=True)
            continue
        report["shapes"][name] = {**json.loads(one.read_text()), "sm_clock_mhz_after": sm_clock()}
        one.unlink()
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    print("\n".join(f"failed: {name}" for name in failed), file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
