"""Cliffs in time: problems that are served right, but take far longer than a neighbour. Steps 05, 06 and 07.

    python benchmarks/cliffs.py --json results/h200/cliffs.json
    python benchmarks/cliffs.py --only values,host

A row is a problem, its time, the time of what it is compared with, and the ratio of the two. Each group has its own neighbours:

    values           one element is infinite, NaN, the lowest number or denormal; the same problem without it
    heads and batch  128 tokens, up to 70,000 heads; by operation, the next smaller problem. Step 07, all blocks live; step 05
    shared heads     backward, several heads share a key/value head; FlashAttention-2, as many key/value heads as heads, and the kernel
                     that does not split heads over blocks
    dims             every multiple of 8 up to 256, and odd ones; by operation, the better of the next two multiples of 32
    windows          4096 tokens, causal; the next larger window
    uneven lengths   packed sequences, one long and many short; by operation, equal sequences or one sequence
    masks            step 07 with one live block, block row or block column; dense attention
    plans            step 07 with the plan kept from one launch to the next; a plan at each launch
    host             what a call costs the host through examples/flashsteps_torch.py; an empty function, and FlashAttention-2

"By operation" means that the neighbour's time is scaled to the operations of the row's problem. Of the variants that a library calls
best, the first that takes a problem serves it. O and LSE of a backward pass come from our own forward pass. Inputs are random normal, fp16.

Each result is checked, coarsely: it is finite. In the group `values` the rows that are not finite are exactly those that depend on the
element through pairs that are seen, and all rows that do not depend on it are as without it. What it needs, and its exit status: peers.py.
"""

import argparse
import contextlib
import ctypes
import fnmatch
import functools
import itertools
import math
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import packed_peers
import peers
import sparse_peers
from cliff_rows import GROUPS, PADDED, WHOLE
from odd_elements import INPUTS, by_tiles, judge
from peers import ROOT, Gpu, Refused
from sparse_peers import DENSE_STEPS, FA2, STEP, TILES
from turns import to_text

EXPLAINED = {
    "values/backward, dO inf, one in each row*, d 128, *": "docs/infinity.md#backward-what-explains-an-element",
    "heads and batch/forward, *, mask: all, over step 05": "docs/07b_block_sparse.md#what-was-tried",
    **{f"dims/{of}, *, d {dim}, over *": "docs/05b_flash_v2.md#variant-any_dim-any-row-at-any-address" for of, dim in PADDED},
}  # pattern of "group/row, over what": the page of the book that says why the ratio is above what is claimed

MOST = 2.0  # no ratio is above it,
MOST_OF = {"windows": 1.1, "masks": 0.25, "plans": 1.02}  # but of these groups,
MOST_OVER = {("shared heads", FA2): 1.0, ("shared heads", WHOLE): 1.03}  # and over these others: there we are ahead, and splitting costs nothing
MOST_UNTOUCHED = 1.5  # of `values`: where no product of tiles spreads NaN to what does not depend on it
HOST_US = {"forward": 40, "forward and backward": 80}
ROUNDS, SLOW_ROUNDS, SLOW_MS, ONCE_MS = 7, 3, 50, 250  # launches that are timed; fewer from SLOW_MS on, one from ONCE_MS on
WAIT_CYCLES = 12_000_000  # of a kernel that waits, while the host gets ahead: 6 ms and more
HOST, CALLS = "host", 2000  # a group whose rows are no problems for the GPU; calls of each
ALL_GROUPS = (*GROUPS, HOST)


# ---- a problem ----


class Tensors:
    """A case's inputs and outputs [batch, heads, rows, dim], and the problem for our library."""

    def __init__(self, torch, case, odd=None, device="cuda"):
        torch.manual_seed(1)
        shared = case.kv_heads or case.heads
        made = {
            name: torch.randn((case.batch, heads, case.seq, case.dim), device=device, dtype=torch.float16)
            for name, heads in zip(INPUTS, (case.heads, shared, shared, case.heads), strict=True)
        }
        made["v"] += 0.5  # as in the steps' own inputs: outputs keep away from zero
        if odd:
            odd.put(torch, made)
        self.q, self.k, self.v, self.d_o = made.values()
        self.o, self.lse = torch.empty_like(self.q), torch.empty(self.q.shape[:3], device=device)
        self.gradients = [torch.empty_like(x) for x in (self.q, self.k, self.v)]
        self.sums = self.sums_on_device = None
        if case.lengths:
            ends = [0, *itertools.accumulate(case.lengths)]
            self.sums, self.sums_on_device = (ctypes.c_int * len(ends))(*ends), torch.tensor(ends, dtype=torch.int32, device=device)
        self.problem = packed_peers.problem_of(case, self.q, self.k, self.v, self.o, self.lse, self.sums, self.sums_on_device)
        self.problem.kv_heads, self.problem.window = shared, case.window
        if case.mask:
            self._mask = sparse_peers.OurMask(torch, case.live, device)
            self.problem.sparse = ctypes.addressof(self._mask.sparse)

    def results(self, backward):
        return self.gradients if backward else [self.o, self.lse]


def best(library, backward, tensors, held, variant="", keep_plan=False):
    """(launch, operations) of the variant, or else of the first of the best ones that takes the problem."""
    described, reasons = library.describe(), []
    gradients = peers.Gradients(*(peers.tensor_of(x) for x in (tensors.d_o, *tensors.gradients))) if backward else None
    for name in [variant] if variant else (described.get("backward", described) if backward else described)["best"]:
        try:
            return held.enter_context(library.variant(name, tensors.problem, gradients, keep_plan))
        except Refused as error:
            reasons.append(str(error))
    raise Refused("; ".join(dict.fromkeys(reasons)))


def serve(libraries, case, tensors, held):
    """(launch, operations) of the case, which has run once."""
    forward, step = case.steps
    launch, operations = best(libraries[forward], False, tensors, held, keep_plan=case.keeps_plan)
    if case.backward:
        launch()
        launch, operations = best(libraries[step], True, tensors, held, case.variant, case.keeps_plan)
    for result in tensors.results(case.backward):
        result.fill_(math.nan)
    launch()
    return launch, operations


def time_of(torch, launch):
    """The median time in ms of a launch that has run before."""

    def each(count):
        torch.cuda._sleep(WAIT_CYCLES)
        return Gpu(torch).each(launch, 1, count)

    torch.cuda._sleep(WAIT_CYCLES)
    about = Gpu(torch).each(launch, 0, 1)[0]
    return about if about >= ONCE_MS else statistics.median(each(SLOW_ROUNDS if about >= SLOW_MS else ROUNDS))


@dataclass(frozen=True)
class Measured:
    ms: float
    operations: float
    right: bool
    spread: bool | None = None  # of `values`

    def scaled_to(self, of):
        """The time scaled to the operations of another one."""
        return self.ms * of.operations / self.operations


class Bench:
    """Problems, each measured once."""

    def __init__(self, torch, libraries):
        self._torch, self._libraries = torch, libraries
        self.ours, self.fa2_ms, self._clean = map(functools.cache, (self._ours, self._fa2_ms, self._clean_results))

    def _ours(self, case, odd=None):
        """Raises Refused where no variant takes it."""
        with contextlib.ExitStack() as held:
            tensors, spread = Tensors(self._torch, case, odd), None
            launch, operations = serve(self._libraries, case, tensors, held)
            results = tensors.results(case.backward)
            if odd:
                inputs, seen = {name: getattr(tensors, name) for name in INPUTS}, case.seen(self._torch, tensors.q.device)
                pairs = seen, by_tiles(seen, *TILES[case.backward])
                right, spread = judge(self._torch, odd, case.backward, pairs, inputs, results, self._clean(case))
            else:
                right = not any(bool((x.isnan() if x.dim() == 3 else ~x.isfinite()).any()) for x in results)  # LSE may be −∞
            return Measured(time_of(self._torch, launch), operations, right, spread)

    def _clean_results(self, case):
        """Without an odd element."""
        with contextlib.ExitStack() as held:
            tensors = Tensors(self._torch, case)
            serve(self._libraries, case, tensors, held)
            self._torch.cuda.synchronize()  # only then may the scratch memory serve others
            return tensors.results(case.backward)

    def _fa2_ms(self, case):
        """Of FlashAttention-2; None where it does not take the problem."""
        tensors = Tensors(self._torch, case)
        try:
            if case.lengths:
                launch = packed_peers.flash_attention_2(self._torch, case, tensors)
            else:
                launch = sparse_peers.prepare_dense(self._torch, case, FA2, tensors.q, tensors.k, tensors.v, tensors.d_o)
            launch()
            return time_of(self._torch, launch)
        except RuntimeError:
            return None

    def row(self, row):
        """The row as JSON."""
        made = {"name": row.name, "of": row.of}
        try:
            ours, others = self.ours(row.case, row.odd), [self.ours(other) for other in row.others]
        except Refused as error:
            return {**made, "refused": peers.first_line(error)}
        fa2_ms = self.fa2_ms(row.case) if row.fa2 else None
        times = [other.scaled_to(ours) if row.by_operation else other.ms for other in others]
        of_ms = fa2_ms if row.of == FA2 else min(times, default=None)
        right = all(one.right for one in (ours, *others))
        made |= {"ms": ours.ms, "of_ms": of_ms, "ratio": ours.ms / of_ms if of_ms else None, "fa2_ms": fa2_ms, "verdict": "ok" if right else "WRONG"}
        made |= {"tflops": ours.operations / ours.ms * 1e-9}
        if row.odd:
            made["spread"] = ours.spread
        if row.group in ("windows", "masks"):
            made |= by_pair(row.case, ours, others[0])
        return made


def by_pair(case, ours, other):
    """What a pair that is seen costs, and what the problem costs besides, on the line through both problems; of a mask, its tiles."""
    pairs, of_other = (one.operations / ((10 if case.backward else 4) * case.dim) for one in (ours, other))
    made = {"pairs": pairs}
    if of_other != pairs:
        slope = (other.ms - ours.ms) / (of_other - pairs)
        made |= {"ps_per_pair": slope * 1e9, "fixed_ms": ours.ms - slope * pairs}
    if case.mask:
        tiles = sparse_peers.tiles_visited(case.live, case.causal, *TILES[case.backward])
        made |= {"tiles": tiles, "share": sparse_peers.exact_share(case.live, case.causal, case.backward), "us_per_tile": ours.ms * 1e3 / tiles}
    return made


# ---- the host ----


def call_us(torch, call):
    """The median of what a call costs the host, in µs. Nothing waits for the GPU meanwhile."""
    for _ in range(CALLS // 10):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(CALLS):
        begin = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - begin)
    torch.cuda.synchronize()
    return statistics.median(times) / 1000


def host_rows(torch, folder):
    """The rows of the group `host` as JSON: one head, 64 tokens. `folder` has the libraries."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    os.environ["FLASHSTEPS_LIB"] = str(folder)
    sys.path.insert(0, str(ROOT / "examples"))
    from flashsteps_torch import attention

    class Empty(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            return torch.empty_like(q)

        @staticmethod
        def backward(ctx, d_o):
            return d_o, d_o, d_o

    q, k, v, d_o = (torch.randn((1, 1, 64, 64), device="cuda", dtype=torch.float16) for _ in range(4))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    pytorchs = torch.nn.functional.scaled_dot_product_attention
    both = lambda attend: lambda: torch.autograd.grad(attend(*leaves), leaves, d_o)
    rows = []
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        found, expected = ([attend(q, k, v), *both(attend)()] for attend in (attention, pytorchs))
        right = all(torch.allclose(x, y, rtol=0, atol=0.02) for x, y in zip(found, expected, strict=True))
        for name, call in (("forward", lambda attend: lambda: attend(q, k, v)), ("forward and backward", both)):
            ours, *others = (call_us(torch, call(attend)) / 1000 for attend in (attention, Empty.apply, pytorchs))
            for of, other in zip(("an empty autograd.Function", FA2), others, strict=True):
                rows.append({"name": name, "of": of, "ms": ours, "of_ms": other, "ratio": ours / other, "fa2_ms": others[-1], "verdict": "ok" if right else "WRONG"})
    return rows


# ---- what is said ----


def page_of(group, row):
    """The page of the book that explains the row; None where none does."""
    full = f"{group}/{row['name']}, over {row['of']}"
    return next((page for pattern, page in EXPLAINED.items() if fnmatch.fnmatchcase(full, pattern)), None)


def limit_of(group, row):
    """The ratio that a row may have; None where nothing is claimed of it."""
    if group == HOST or row.get("ratio") is None or page_of(group, row):
        return None
    return min(MOST_OVER.get((group, row["of"]), MOST_OF.get(group, MOST)), MOST_UNTOUCHED if row.get("spread") is False else math.inf)


def claims(groups):
    """[{what, value, target}] of rows as in the JSON, by group. What was not measured is left out."""
    figures = []
    for group, rows in groups.items():
        measured = [row for row in rows if row.get("ratio") is not None]
        if group == HOST:
            for name, most in HOST_US.items():
                figures.append((f"host: µs of a call, {name}", max, [1000 * row["ms"] for row in measured if row["name"] == name], most))
            continue
        claimed = [row for row in measured if not page_of(group, row)]
        explained = [row["ratio"] for row in measured if page_of(group, row)]
        figures.append((f"{group}: the most of the ratios", max, [row["ratio"] for row in claimed], MOST_OF.get(group, MOST)))
        figures.append((f"{group}: the most of those that the book explains", max, explained, None))
        for (of_group, other), most in MOST_OVER.items():
            if of_group == group:
                figures.append((f"{group}: the most over {other}", max, [row["ratio"] for row in claimed if row["of"] == other], most))
        untouched = [row["ratio"] for row in claimed if row.get("spread") is False]
        figures.append((f"{group}: the most where no product of tiles spreads NaN", max, untouched, MOST_UNTOUCHED))
    return peers.claims_of(figures)


def table(group, rows):
    """Lines of text."""
    number = lambda value, width, digits: f"{value:{width}.{digits}f}" if value is not None else f"{'-':>{width}}"
    lines = [f"{group:56} {'ms':>9} {'of ms':>9} {'ratio':>8} {'FA2 ms':>9}"]
    for row in rows:
        if "refused" in row:
            lines.append(f"  {row['name']:54} refused: {row['refused']}")
            continue
        limit, page = limit_of(group, row), page_of(group, row)
        notes = [f"over {row['of']}"] * bool(row["of"]) + ["WRONG"] * (row["verdict"] == "WRONG")
        notes += ["CLIFF"] * (limit is not None and row["ratio"] > limit) + [f"see {page}"] * bool(page)
        numbers = number(row["ms"], 9, 4), number(row["of_ms"], 9, 4), number(row["ratio"], 8, 3), number(row["fa2_ms"], 9, 4)
        lines.append(f"  {row['name']:54} {' '.join(numbers)}  {', '.join(notes)}".rstrip())
    return lines


# ---- the program ----


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "gpu", help="the gpu preset's build folder")
    parser.add_argument("--only", action="append", metavar="GROUP[,GROUP]", help=f"of {', '.join(ALL_GROUPS)}; may be repeated")
    parser.add_argument("--commit", help="of the sources, where the repository's history is not at hand")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    options.only = [name.strip() for names in options.only or [] for name in names.split(",")]
    for name in options.only:
        if name not in ALL_GROUPS:
            parser.error(f"--only: no group is called '{name}'; there are: {', '.join(ALL_GROUPS)}")
    return options, {step: peers.load(parser, options, step) for step in (*DENSE_STEPS.values(), STEP)}


def main(arguments=None):
    """The program; returns its exit status."""
    options, libraries = parse(arguments)
    torch = peers.import_torch()
    about, bench, groups = peers.machine(torch, "cliffs", libraries[STEP].describe(), options), Bench(torch, libraries), {}
    print(f"on {about['name']}; PyTorch {about['torch']}")
    try:
        for group in [name for name in ALL_GROUPS if name in (options.only or ALL_GROUPS)]:
            begin = time.monotonic()
            groups[group] = host_rows(torch, options.build.resolve() / "lib") if group == HOST else [bench.row(row) for row in GROUPS[group]()]
            print("", *table(group, groups[group]), f"  ({time.monotonic() - begin:.1f} s)", sep="\n", flush=True)
    except (RuntimeError, Refused) as error:
        peers.refuse(error)
    said = claims(groups)
    print()
    for claim in said:
        print(f"{claim['what']}: {claim['value']:.3f}" + (f" (target {claim['target']})" if claim["target"] else ""))
    if options.json:
        options.json.write_text(to_text({"machine": about, "rounds": ROUNDS, "explained": EXPLAINED, "groups": groups, "claims": said}))
    wrong = [f"{row['name']} ({group})" for group, rows in groups.items() for row in rows if row.get("verdict") == "WRONG"]
    for name in wrong:
        print(f"WRONG: {name}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
