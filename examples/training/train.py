"""Trains one transformer block on a paragraph, with the attention of your choice, and prints the loss of each step.

    python examples/training/train.py                                                      NumPy, double precision
    python examples/training/train.py --attention simulator --dtype fp16 --steps 3         steps 05 and 06, without a GPU
    python examples/training/train.py --attention flashsteps --dtype bf16 --dropout 0.1    the same kernels, through PyTorch
    python examples/training/train.py --attention torch --dtype bf16 --dropout 0.1         PyTorch's own attention

The last two use the GPU that PyTorch sees; else torch runs on the CPU, and flashsteps in the simulator. What is trained: block.py. Exit
status 1: the loss is not finite; 2: a wrong flag; 3: PyTorch, a program or a library is missing, or fails.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import block
from attentions import InNumPy, Programs
from dropout import share_of_256


def parsed(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attention", choices=["double", "simulator", "torch", "flashsteps"], default="double", help="who computes it (default: %(default)s)")
    parser.add_argument("--dtype", choices=["fp32", "fp16", "bf16"], help="of the attention (default: fp16; double has its own)")
    parser.add_argument("--dropout", type=float, default=0.0, metavar="P", help="leave out this share of the probabilities, rounded to n/256")
    parser.add_argument("--steps", type=int, default=block.STEPS, metavar="N", help="default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the losses to this file")
    options = parser.parse_args(arguments)
    if options.attention == "double" and options.dtype:
        parser.error(f"--dtype {options.dtype}: the attention 'double' is in double precision")
    options.dtype = "fp64" if options.attention == "double" else options.dtype or "fp16"
    if options.steps < 1:
        parser.error(f"--steps: {options.steps} is not 1 or more")
    if options.json and options.json.is_dir():
        parser.error(f"--json: {options.json} is a folder")
    if options.json and not options.json.resolve().parent.is_dir():
        parser.error(f"--json: there is no folder {options.json.resolve().parent}")
    try:
        options.of_256 = share_of_256(options.dropout)
    except ValueError as error:
        parser.error(f"--dropout: {error}")
    return options


def losses_of(options):
    """(where it runs, the losses step by step)."""
    if options.attention == "double":
        return "NumPy", block.train(InNumPy(of_256=options.of_256), options.steps)
    if options.attention == "simulator":
        return "NumPy, attention by the programs", block.train(Programs(options.dtype, options.of_256), options.steps)
    import torch_block

    device = "cuda" if torch_block.torch.cuda.is_available() else "cpu"
    attention = torch_block.attention_of(options.attention, options.of_256)
    return f"PyTorch, {device}", torch_block.train(attention, options.dtype, options.steps, device)


def main(arguments=None):
    """The program; returns its exit status."""
    options = parsed(arguments)
    losses = []
    try:
        where, steps = losses_of(options)
        print(f"attention by {options.attention}, {options.dtype}, dropout {options.of_256}/256 ({where})")
        for step, loss in enumerate(steps):
            print(f"step {step:3}  loss {loss:.6f}", flush=True)
            if not math.isfinite(loss):
                print(f"train: the loss of step {step} is not finite", file=sys.stderr)
                return 1
            losses.append(loss)
    except (ImportError, OSError, RuntimeError) as error:
        print(f"train: {error}", file=sys.stderr)
        return 3
    if options.json:
        report = {"attention": options.attention, "dtype": options.dtype, "dropout_of_256": options.of_256, "losses": losses}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
