"""What is committed of the runs on a device, for the book's tables and for the tour: results/DEVICE/ and docs/machine/DEVICE.json."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.measure.profiling import ncu
from tools.measure.profiling.machine import DEVICES, quantity


class ResultError(Exception):
    """A committed result that is missing or not right; its text says which."""


def read_json(root, path):
    """A committed JSON file; ResultError if it is not there."""
    if not (root / path).is_file():
        raise ResultError(f"{path} does not exist")
    return json.loads((root / path).read_text())


class Results:
    """What is committed of the runs on one device: the one that is named, else the first of DEVICES that has what is asked for first. ResultError
    for a device without results. `used`: the devices whose numbers were read."""

    def __init__(self, root, device=None):
        if device and not (root / "results" / device).is_dir():
            raise ResultError(f"results/{device} does not exist")
        self.root, self.device, self.used = root, device, []

    def each(self):
        """The same of each device, if none was named; what they read counts here."""
        for device in [self.device] if self.device else DEVICES:
            one = Results(self.root, device)
            one.used = self.used
            yield one

    def _chosen(self, has):
        self.device = self.device or next((device for device in DEVICES if has(device)), DEVICES[0])
        return self.device

    def path(self, file):
        """results/DEVICE/FILE, from the root."""
        device = self._chosen(lambda device: (self.root / "results" / device / file).is_file())
        return f"results/{device}/{file}"

    def has(self, file):
        return (self.root / self.path(file)).is_file()

    def _reading(self):
        self.used += [self.device] * (self.device not in self.used)

    def read(self, file):
        """results/DEVICE/FILE, which is JSON; ResultError if it is not there."""
        path = self.path(file)
        self._reading()
        return read_json(self.root, path)

    def profile(self, step):
        """{shape: [{metric: text}, …]} of a step's launches, by Nsight Compute; nothing before the first profile is committed."""
        file = f"ncu_{step}.csv"
        if not self.has(file):
            return {}
        self._reading()
        return ncu.measured(self.root / self.path(file))

    def machine(self):
        """What the device can do."""
        self._chosen(lambda device: (self.root / "docs" / "machine" / f"{device}.json").is_file())
        self._reading()
        return read_json(self.root, f"docs/machine/{self.device}.json")

    def _benchmarks(self, device):
        path = f"results/{device}/bench.json"
        reports = read_json(self.root, path) if (self.root / path).is_file() else []
        return {(report["step"], report["shape"]): report for report in reports}

    def benchmarks(self, step=None):
        """{(step, shape): report} of the committed benchmarks, of one step if it is named; nothing before the first ones are committed."""
        found = lambda device: {key: report for key, report in self._benchmarks(device).items() if step in (None, key[0])}
        self._chosen(found)
        self._reading()
        return found(self.device)


def by_variant(report):
    """{variant: result}; ResultError where a check failed, because then a time means nothing."""
    for result in report["results"]:
        if not result["verdict"] or not result["verdict"]["pass"]:
            raise ResultError(f"{report['step']}, {result['variant']}: its result was not checked or not right")
    return {result["variant"]: result for result in report["results"]}


def median(result):
    return quantity(result["times_ms"]["median"] / 1000, "s")


def described(report):
    """The problem of a report in a few words: "16 heads, 1024 tokens, d = 64, causal", "m = n = k = 4096, fp16"."""
    problem = report["results"][0]["problem"]
    if problem["family"] == "gemm":
        sizes = [problem["m"], problem["n"], problem["k"]]
        return (f"m = n = k = {sizes[0]}" if len(set(sizes)) == 1 else " × ".join(map(str, sizes))) + f", {problem['dtype']}"
    if problem["family"] == "softmax":
        return f"{problem['rows']} × {problem['cols']}, {problem['dtype']}"
    if problem["family"] == "linear":
        experts = f", {problem['top']} of {problem['experts']} experts" if problem["experts"] else ""
        return f"{problem['n']} × {problem['k']}, {problem['m']} token{'s' if problem['m'] > 1 else ''}{experts}, {problem['dtype']}"
    tokens = f"{problem['seq_q']} tokens"
    if problem["seq_k"] != problem["seq_q"]:
        tokens = f"{problem['seq_q']} queries, {problem['seq_k']} keys"
    batch = f"batch {problem['batch']}, " if problem["batch"] > 1 else ""
    causal = ", causal" if problem["causal"] else ""
    dtype = "" if problem["dtype"] == "fp32" else f", {problem['dtype']}"
    backward = "backward, " if problem["family"] == "backward" else ""
    live = f", {100 * live_share(problem):.0f} % live" if problem.get("sparse") else ""
    return f"{backward}{batch}{problem['heads']} heads, {tokens}, d = {problem['dim']}{causal}{live}{dtype}"


def live_share(problem):
    """The share of pairs that a sparse mask leaves, of those that a causal mask leaves; windows do not count."""
    queries, keys = problem["seq_q"], problem["seq_k"]
    pairs = sum(min(max(i + 1 + keys - queries, 0), keys) for i in range(queries)) if problem["causal"] else queries * keys
    return problem["sparse"]["live_pairs"] / (problem["batch"] * problem["heads"] * pairs)
