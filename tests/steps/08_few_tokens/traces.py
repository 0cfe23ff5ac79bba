"""What the simulator saw one warp of step 08 do, for the book's pictures (tools/measure/traces.py).

order    the order of requests, multiplications and waits of a warp, in a launch that waits for the one before and in one that need not
"""

from itertools import groupby

from tools.measure.traces import trace

STEP = "08_few_tokens"
SHAPE = ["--m", "8", "--n", "4096", "--k", "4096"]
VARIANTS = ["row_groups", "dependent"]
BUFFERS = {"b": "weights", "a": "tokens", "c": "C"}


def kind(event):
    """What an instruction is about, in the picture's words."""
    if "global" in event:
        return BUFFERS[event["global"]["buffer"]]
    if event["op"].startswith("griddepcontrol"):
        return event["op"].removeprefix("griddepcontrol.")
    return "mma" if event["op"].startswith("mma") else "sums"


def order(build, variant):
    """What the warp does, as [what, how many instructions]: weights and tokens are requested, C is written."""
    ((_, events),) = trace(STEP, build, "--variant", variant, *SHAPE)
    return [[what, len(list(group))] for what, group in groupby(map(kind, events))]


def observations(build):
    return {"order": {"step": STEP, "traced": "block 0, warp 0", "variants": {variant: order(build, variant) for variant in VARIANTS}}}
