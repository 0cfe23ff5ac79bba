"""Contenders that take turns, and what may be said of them: no GPU and no PyTorch in here.

A clock that drifts meets all contenders alike, because they take turns, round by round, each round in another order. Two kinds of time:

    burst       a few launches, each timed alone, after a pause and launches that wake the GPU up: the clock is not yet down
    sustained   launches without a pause, for a while: the power limit decides the clock

The machine that measures them has three methods, all in milliseconds: pause(ms); each(launch, wake, count), the time of each of
`count` launches that follow `wake` others at once; together(launch, count), the mean over `count` launches that follow as many
others at once, and the SM clock meanwhile in MHz (None where it cannot say).
"""

import json
import math
import re
import statistics
from dataclasses import dataclass, field

WAKE_MS = 1  # of work that is queued first: the host gets ahead, so that what a launch costs it is not in the times


@dataclass
class Contender:
    """Something that takes a turn."""

    name: str
    operations: float  # of one launch
    launch: object  # a function; it may return before the work is done
    verdict: str = ""  # empty where there is nothing to check
    worst_ratio: float | None = None  # of an error to what is allowed
    burst_ms: list = field(default_factory=list)  # by round: the time of each repetition
    sustained_ms: float = 0.0
    sm_clock_mhz: int | None = None

    def rate(self, ms):
        """In TFLOP/s."""
        return self.operations / ms * 1e-9

    def rates(self):
        """By round, of the median."""
        return [self.rate(statistics.median(repetitions)) for repetitions in self.burst_ms]


def measure(contenders, machine, rounds, repetitions, pause_ms, sustained_ms):
    """Fills in the times of all contenders."""
    about = {}
    for contender in contenders:  # not counted: the first launches load the code
        machine.each(contender.launch, 1, 1)
        about[contender.name] = statistics.median(machine.each(contender.launch, 1, repetitions))
    for turn in range(rounds):
        first = turn % len(contenders)
        for contender in contenders[first:] + contenders[:first]:
            machine.pause(pause_ms)
            wake = math.ceil(WAKE_MS / about[contender.name])
            contender.burst_ms.append(machine.each(contender.launch, wake, repetitions))
    for contender in contenders:
        machine.pause(sustained_ms)
        count = math.ceil(sustained_ms / 2 / about[contender.name])
        contender.sustained_ms, contender.sm_clock_mhz = machine.together(contender.launch, count)


SPREAD = {"median": statistics.median, "min": min, "max": max}


def spread(values):
    return {name: of(values) for name, of in SPREAD.items()}


def ratios(contender, other):
    """Speed over another one's, in each round."""
    return [mine / theirs for mine, theirs in zip(contender.rates(), other.rates(), strict=True)]


def entry(contender, others):
    """A contender as JSON. `others`: those whose speed its own is set against."""
    return {
        "name": contender.name,
        "verdict": contender.verdict,
        "worst_ratio": contender.worst_ratio if math.isfinite(contender.worst_ratio or 0) else None,  # JSON has no infinity
        "operations": contender.operations,
        "burst_ms": spread([ms for repetitions in contender.burst_ms for ms in repetitions]),
        "rounds_ms": {name: [of(repetitions) for repetitions in contender.burst_ms] for name, of in SPREAD.items()},
        "tflops": spread(contender.rates()),
        "of": {other.name: spread(ratios(contender, other)) for other in others},
        "sustained_ms": contender.sustained_ms,
        "sustained_tflops": contender.rate(contender.sustained_ms),
        "sm_clock_mhz": contender.sm_clock_mhz,
    }


def to_text(report):
    """A report as indented JSON, numbers with six digits. A list or an object of plain values stands in one line where it fits."""

    def rounded(value):
        if isinstance(value, dict):
            return {key: rounded(of) for key, of in value.items()}
        if isinstance(value, list):
            return [rounded(of) for of in value]
        return float(f"{value:.6g}") if isinstance(value, float) else value

    def in_one_line(found):
        line = json.dumps(json.loads(found.group()))
        return line if len(line) <= 120 else found.group()

    return re.sub(r"[\[{][^\[\]{}]*[\]}]", in_one_line, json.dumps(rounded(report), indent=1)) + "\n"
