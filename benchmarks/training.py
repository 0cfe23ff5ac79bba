"""Training with our attention beside training with PyTorch's: one transformer block, 200 steps, in fp16 and bf16, with and without dropout.

    python benchmarks/training.py --json results/h200/training.json
    python benchmarks/training.py --simulator --json results/sim/training.json      without a GPU: 20 minutes

What is trained: examples/training/block.py. Two runs of a type differ in nothing but who computes the attention: steps 05 and 06 through
examples/flashsteps_torch.py, or PyTorch; with dropout both leave out the same pairs. NumPy adds the run in double precision. Nothing is
timed. Needs a Python with PyTorch, an NVIDIA GPU, and the steps as libraries (make gpu). With --simulator our kernels run in the simulator
(make sim), and PyTorch on the CPU.

Exit status: 1 if a claim does not hold; 2 for a wrong flag, or without the libraries; 3 without PyTorch, without a GPU, or if the device
fails.
"""

import argparse
import datetime
import itertools
import json
import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import peers

sys.path.insert(0, str(peers.ROOT / "examples" / "training"))

import block
from attentions import InNumPy
from dropout import share_of_256

DTYPES, SHARES = ("fp16", "bf16"), (0.0, 0.1)
OURS, PYTORCHS, TRUTH = "flashsteps", "torch", "double"
MOST, LEAST = 1e-3, 2.0  # relative difference of a step's losses; first loss over the last


def runs_of(train, steps):
    """[{attention, dtype, dropout_of_256, losses}]. train(attention, dtype, of_256, steps) yields the losses."""
    wanted = [(TRUTH, "fp64", share) for share in SHARES]
    wanted += list(itertools.product((OURS, PYTORCHS), DTYPES, SHARES))
    found = []
    for attention, dtype, share in wanted:
        of_256 = share_of_256(share)
        losses = list(train(attention, dtype, of_256, steps))
        print(f"{attention:10} {dtype}, dropout {of_256:2}/256: loss {losses[0]:.6f} to {losses[-1]:.6f}", flush=True)
        found.append({"attention": attention, "dtype": dtype, "dropout_of_256": of_256, "losses": losses})
    return found


def train(attention, dtype, of_256, steps, device):
    """Yields the losses of a run in PyTorch; in double precision, of one in NumPy."""
    if attention == TRUTH:
        return block.train(InNumPy(of_256=of_256), steps)
    import torch_block

    return torch_block.train(torch_block.attention_of(attention, of_256), dtype, steps, device)


def largest_difference(losses, of):
    """Relative, of any step; infinite if a loss is not finite."""
    differences = [abs(mine - other) / abs(other) for mine, other in zip(losses, of, strict=True)]
    return max(differences) if all(map(math.isfinite, differences)) else math.inf


def claims_of(runs):
    """[{what, value, target, is}]: `is` says "at most" or "at least"; without a target nothing is claimed."""
    losses = {(run["attention"], run["dtype"], run["dropout_of_256"]): run["losses"] for run in runs}
    claims = []
    for dtype, share in itertools.product(DTYPES, map(share_of_256, SHARES)):
        name, truth = f"{dtype}, dropout {share}/256", losses[TRUTH, "fp64", share]
        ours, others = losses[OURS, dtype, share], losses[PYTORCHS, dtype, share]
        claims += [
            {"what": f"{name}: largest relative difference of a step's loss from PyTorch's", "value": largest_difference(ours, others), "target": MOST, "is": "at most"},
            {"what": f"{name}: first loss over the last", "value": ours[0] / ours[-1], "target": LEAST, "is": "at least"},
            {"what": f"{name}: largest relative difference from double precision, ours", "value": largest_difference(ours, truth), "target": None, "is": None},
            {"what": f"{name}: largest relative difference from double precision, PyTorch's", "value": largest_difference(others, truth), "target": None, "is": None},
        ]
    return claims


def holds(claim):
    if claim["target"] is None:
        return True
    return claim["value"] <= claim["target"] if claim["is"] == "at most" else claim["value"] >= claim["target"]


def finish(path, runs, head):
    """Prints the claims, and writes the report; the exit status."""
    claims = claims_of(runs)
    for claim in claims:
        target = "" if claim["target"] is None else f" ({claim['is']} {claim['target']:g}{'' if holds(claim) else ': MISSED'})"
        print(f"{claim['what']}: {claim['value']:.3g}{target}")
    if path:
        path.write_text(json.dumps({**head, "runs": runs, "claims": claims}, indent=1) + "\n")
    return 0 if all(map(holds, claims)) else 1


def libraries(parser, options):
    """The folder of the steps' libraries, and what step 06 says of itself."""
    preset = "sim" if options.simulator else "gpu"
    folder = (options.build or peers.ROOT / "build" / preset).resolve() / "lib"
    try:
        return folder, peers.Library(folder / "libattention_06_backward.so").describe()
    except OSError as error:
        parser.error(f"{error}; make {preset} builds it")


def without_gpu(torch, built, options):
    """What peers.machine says of a GPU."""
    describe = subprocess.run(["git", "-C", peers.ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return {
        "name": "the simulator",
        "toolkit": built["toolkit"],
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": options.commit or describe.stdout.strip() or "unknown",
        "command": ["benchmarks/training.py", "--simulator"],
    }


def main(arguments=None):
    """The program; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulator", action="store_true", help="our kernels in the simulator, PyTorch on the CPU (20 minutes on two cores)")
    parser.add_argument("--build", type=Path, help="the preset's build folder (default: build/gpu, with --simulator build/sim)")
    parser.add_argument("--commit", help="of the sources, where the repository's history is not at hand")
    parser.add_argument("--json", type=Path, help="write the losses and the claims to this file")
    options = parser.parse_args(arguments)
    if options.json and not options.json.resolve().parent.is_dir():
        parser.error(f"--json: there is no folder {options.json.resolve().parent}")
    folder, built = libraries(parser, options)
    os.environ["FLASHSTEPS_SIM_LIB" if options.simulator else "FLASHSTEPS_LIB"] = str(folder)
    if options.simulator:
        try:
            import torch
        except ImportError:
            peers.refuse(f"{sys.executable} has no PyTorch, whose attention is the peer; run this with a Python that has it")
        about, device = without_gpu(torch, built, options), "cpu"
    else:
        torch = peers.import_torch()
        about, device = peers.machine(torch, "training", built, options), "cuda"
    print(f"on {about['name']}; PyTorch {about['torch']}")
    try:
        runs = runs_of(partial(train, device=device), block.STEPS)
    except (RuntimeError, ValueError, OSError) as error:
        peers.refuse(error)
    settings = {"steps": block.STEPS, "rate": block.RATE, "momentum": block.MOMENTUM, "loss_scale": block.LOSS_SCALE}
    return finish(options.json, runs, {"machine": about, **settings})


if __name__ == "__main__":
    sys.exit(main())
