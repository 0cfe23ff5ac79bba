"""Step 09 beside the kernels that PyTorch has, and beside a kernel that only reads the keys and values, in one run.

    python benchmarks/decoding_peers.py --json results/h200/decoding_peers.json

A turn is the replay of a CUDA graph of 32 launches or more. Each launch finds the next copy of K and V, because L2 would keep a part of them
for the next launch: all copies are 850 MB, or one copy of 2.1 GB. Copies hold different values, and each launch writes an O and an LSE of its
own. A launch that may begin before the one before has ended does so in a graph. Times are of one launch; rates are the bytes of K and V, read
once, over the time.

The peers are FlashAttention-2 and cuDNN, reached through torch.nn.functional.scaled_dot_product_attention, and FlexAttention, compiled for
each cell; where it does not work, the reason is printed. Each of the first two is called in two ways, and no way copies K or V:

    by itself       q [batch, heads, tokens, dim] with enable_gqa=True
    "as rows"       the query heads that share keys are rows of one head: q [batch, kv_heads, heads / kv_heads * tokens, dim]

`best of PyTorch's` in the report is, in each round, the fastest of all these. Where a cell has several tokens, ours are causal: a token sees
no key behind its own. The peers have no mask there, because a mask would not let them run as they run best: they see a few keys more.

Every contender's first result of a graph is checked in all rows against float64. Our results of all launches of a graph must have the same bits as
launches that wait for one another, before the turns and after them. What it needs, how contenders take turns, and its exit status: peers.py.
"""

import argparse
import contextlib
import math
import sys
import time
from dataclasses import asdict, dataclass

import attention_peers
from peers import (
    PEERS,
    ROOT,
    Addresses,
    Gpu,
    Refused,
    finish,
    first_line,
    import_torch,
    load,
    machine,
    parse_common,
    problem_at,
    refuse,
    tensor_of,
)
from turns import SPREAD, Contender, entry, measure, spread

sys.path.insert(0, str(ROOT))
from tools.measure import shapes

STEP = "09_decoding"
KV_HEADS, GROUP = 8, 4  # a key/value head has so many query heads
ROTATING, LAUNCHES = 850_000_000, 32  # bytes of all copies of K and V; launches of a graph: at least
READ_ONLY, BEST = "read only", "best of PyTorch's"
FA2, CUDNN, FLEX, AS_ROWS = "FlashAttention-2", "cuDNN", "FlexAttention", "as rows"
TUNED = ("tuned", "tuned_dependent")
SLOW = ("any_dim", "packed_heads")  # left out where one copy of K and V is as large as all should be


@dataclass(frozen=True)
class Cell:
    batch: int
    keys: int
    tokens: int = 1
    dim: int = 128

    @property
    def name(self):
        return f"batch {self.batch}, {self.keys} keys" + (f", {self.tokens} tokens" if self.tokens > 1 else "") + (f", d {self.dim}" if self.dim != 128 else "")

    @property
    def heads(self):
        return KV_HEADS * GROUP

    @property
    def bytes(self):
        """Of K and V."""
        return 2 * self.batch * KV_HEADS * self.keys * self.dim * 2

    @property
    def copies(self):
        return math.ceil(ROTATING / self.bytes)

    @property
    def launches(self):
        """Of a graph: each copy twice at least, because the start of a graph should not count."""
        return max(LAUNCHES, 2 * self.copies)


CELLS = [
    Cell(16, 4096),
    Cell(16, 32768),
    Cell(1, 32768),
    Cell(1, 4096),
    Cell(64, 1000),
    Cell(4, 131072),
    Cell(16, 4096, tokens=4),
    Cell(16, 4096, dim=64),
    Cell(1, 4096, dim=64),
]


def variants_of(built, cell, chosen):
    """Names of the variants that run: those chosen, or all; the default first. A variant that does not take the cell says so later."""
    names = chosen or sorted((variant["name"] for variant in built["variants"]), key=lambda name: name not in TUNED)
    return [name for name in names if chosen or name not in SLOW or cell.bytes < ROTATING]


# ---- a cell ----


class Arrays:
    """What the launches of a cell work on: [batch, heads, tokens, dim] queries, copies of K and V, which lie side by side."""

    def __init__(self, torch, cell):
        self.q = torch.randn((cell.batch, cell.heads, cell.tokens, cell.dim), device="cuda", dtype=torch.float16)
        self.kv = torch.randn((cell.copies, 2, cell.batch, KV_HEADS, cell.keys, cell.dim), device="cuda", dtype=torch.float16)
        self.kv[:, 1] += 0.5  # as in the steps' own inputs: outputs keep away from zero

    def keys_and_values(self, launch):
        """K and V of that launch of a graph."""
        return self.kv[launch % len(self.kv)].unbind()


def as_rows(x):
    """[batch, heads, tokens, …] with the query heads that share keys as rows of one head: [batch, kv_heads, heads / kv_heads · tokens, …]"""
    return x.unflatten(1, (KV_HEADS, GROUP)).flatten(2, 3)


class Truth:
    """Of a graph's first launch, in double precision: causal, and without a mask."""

    def __init__(self, torch, cell, arrays):
        q, (k, v) = as_rows(arrays.q), arrays.keys_and_values(0)
        rows = list(range(q.shape[2]))
        last_seen = cell.keys - cell.tokens + torch.arange(cell.tokens, device=q.device).repeat(GROUP)
        live = (torch.arange(cell.keys, device=q.device) <= last_seen[:, None])[None, None] if cell.tokens > 1 else None
        self._without = attention_peers.Truth(torch, q, k, v, False, rows)
        self._causal = self._without if live is None else attention_peers.Truth(torch, q, k, v, False, rows, live=live)

    def worst_ratio(self, o, lse=None, causal=False):
        """The largest error over what is allowed, as attention_peers.Truth has it, of O [batch, heads, tokens, dim] and LSE."""
        truth = self._causal if causal else self._without
        return truth.worst_ratio(as_rows(o), None if lse is None else as_rows(lse))


def reason(error):
    """Why a peer is left out."""
    return f"{type(error).__name__}: {first_line(error)}" if str(error).strip() else type(error).__name__


def captured(torch, launch_all):
    """(a graph of what launch_all() launches in the current stream, what it returned)."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = launch_all()
    return graph, results


class Contest:
    """A cell's contenders, each checked as it enters, and those that refused: {name: reason}."""

    def __init__(self, torch, cell, arrays, truth):
        self._torch, self._cell, self._arrays, self._truth = torch, cell, arrays, truth
        self.contenders, self.refused, self.peers = [], {}, []
        self._held, self._again = [], []  # graphs and what they write; (a contender, whether its results are still right)

    def _enter(self, name, graph, held, ratio=None):
        self._held.append((graph, held))
        verdict = "" if ratio is None else "ok" if ratio <= 1 else "WRONG"
        self.contenders.append(Contender(name, self._cell.bytes, graph.replay, verdict, ratio))

    def enter_reader(self, library):
        torch, kv, found = self._torch, self._arrays.kv, self._torch.empty(4, dtype=self._torch.uint8, device="cuda")

        def launch_all():
            for i in range(self._cell.launches):
                library.read_only(kv[i % len(kv)].data_ptr(), self._cell.bytes, found.data_ptr())

        launch_all()  # what happens at a kernel's first launch cannot be recorded
        self._enter(READ_ONLY, captured(torch, launch_all)[0], found)

    def enter_peer(self, name, attend):
        """attend(k, v) returns O, [batch, heads, tokens, dim] or as_rows() of it."""
        torch, arrays = self._torch, self._arrays
        try:
            for _ in range(2):
                attend(*arrays.keys_and_values(0))  # compiles, loads, chooses
            graph, results = captured(torch, lambda: [attend(*arrays.keys_and_values(i)) for i in range(self._cell.launches)])
        except Exception as error:  # noqa: BLE001 (a peer that fails in any way, as for want of a compiler, is left out)
            self.refused[name] = reason(error)
            return
        results[0].fill_(math.nan)
        graph.replay()
        self._enter(name, graph, results, self._truth.worst_ratio(results[0].reshape(arrays.q.shape)))
        self.peers.append(name)

    def enter_variant(self, library, name, held):
        torch, cell, arrays = self._torch, self._cell, self._arrays
        o = torch.empty((cell.launches, *arrays.q.shape), device="cuda", dtype=torch.float16)
        lse = torch.empty(o.shape[:-1], device="cuda")
        k, v = arrays.keys_and_values(0)
        sizes = {"kv_heads": KV_HEADS, "seq_k": cell.keys, "causal": int(cell.tokens > 1)}
        problem = problem_at(arrays.q.shape, "fp16", map(tensor_of, (arrays.q, k, v, o[0])), lse.data_ptr(), **sizes)
        try:
            launch = held.enter_context(library.variant_elsewhere(name, problem))
        except Refused as error:
            self.refused[name] = first_line(error)
            return
        places = []
        for i in range(cell.launches):
            k, v = arrays.keys_and_values(i)
            places.append(Addresses(*(x.data_ptr() for x in (arrays.q, k, v, o[i])), lse[i].data_ptr()))

        def bits():
            return o.view(torch.int16), lse.view(torch.int32)

        def poison():
            o.fill_(math.nan)
            lse.fill_(math.nan)

        poison()
        for place in places:
            launch(place)
            torch.cuda.synchronize()
        one_by_one = [x.clone() for x in bits()]
        graph, _ = captured(torch, lambda: [launch(place) for place in places])
        same = lambda: all(map(torch.equal, bits(), one_by_one))
        poison()
        graph.replay()
        ratio = self._truth.worst_ratio(o[0], lse[0], causal=True) if same() else math.inf
        self._enter(name, graph, (o, lse, one_by_one), ratio)
        self._again.append((self.contenders[-1], same))

    def measured(self, options):
        """Entries as JSON, once all have had their turns. Times are of one launch."""
        measure(self.contenders, Gpu(self._torch), options.rounds, options.repetitions, options.pause_ms, options.sustained_ms)
        for contender, same in self._again:
            if not same():
                contender.verdict, contender.worst_ratio = "WRONG", math.inf
        launches = self._cell.launches
        for contender in self.contenders:
            contender.burst_ms = [[ms / launches for ms in repetitions] for repetitions in contender.burst_ms]
            contender.sustained_ms /= launches
        others = [contender for contender in self.contenders if contender.name in (READ_ONLY, *self.peers)]
        return [as_json(contender, others, self.peers) for contender in self.contenders]


def as_json(contender, others, peers):
    """A contender as turns.entry has it, with bytes and TB/s; its speed is set against the fastest of the peers in each round, too."""
    made = entry(contender, others)
    renamed = {"operations": "bytes", "tflops": "tb_per_s", "sustained_tflops": "sustained_tb_per_s"}
    made = {renamed.get(name, name): value for name, value in made.items()}
    rates = [other.rates() for other in others if other.name in peers]
    if rates:
        made["of"][BEST] = spread([mine / max(theirs) for mine, *theirs in zip(contender.rates(), *rates, strict=True)])
    return made


def flex_attention(torch):
    """Compiled for the shapes of one cell."""
    import torch._dynamo
    from torch.nn.attention.flex_attention import flex_attention

    torch._dynamo.reset()
    return torch.compile(flex_attention, dynamic=False)


def enter_peers(torch, contest, arrays):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    attention = torch.nn.functional.scaled_dot_product_attention
    q, rows = arrays.q, as_rows(arrays.q)
    for name in (FA2, CUDNN):
        backend = getattr(SDPBackend, PEERS[name])

        def by_itself(k, v, backend=backend):
            with sdpa_kernel(backend):
                return attention(q, k, v, enable_gqa=True)

        def by_rows(k, v, backend=backend):
            with sdpa_kernel(backend):
                return attention(rows, k, v)

        contest.enter_peer(name, by_itself)
        contest.enter_peer(f"{name}, {AS_ROWS}", by_rows)
    try:
        flex = flex_attention(torch)
    except Exception as error:  # noqa: BLE001
        contest.refused[FLEX] = reason(error)
        return
    contest.enter_peer(FLEX, lambda k, v: flex(q, k, v, enable_gqa=True))


def measure_cell(torch, library, variants, cell, options, seed):
    """The cell as JSON."""
    torch.manual_seed(seed)
    arrays = Arrays(torch, cell)
    contest = Contest(torch, cell, arrays, Truth(torch, cell, arrays))
    with contextlib.ExitStack() as held, torch.no_grad():
        contest.enter_reader(library)
        enter_peers(torch, contest, arrays)
        for name in variants:
            contest.enter_variant(library, name, held)
        contenders = contest.measured(options)
    problem = {**asdict(cell), "heads": cell.heads, "kv_heads": KV_HEADS, "dtype": "fp16"}
    about = {"ours_causal": cell.tokens > 1, "copies": cell.copies, "launches_of_a_graph": cell.launches}
    return {"problem": problem, **about, "contenders": contenders, "refused": contest.refused}


# ---- the program ----


def claims(cells):
    """What may be said of the cells as in the JSON, with the bounds of the step's shapes.py."""
    said = shapes.claims(STEP, "decoding_peers", cells)
    return [{**claim, "value": claim["most" if claim["bound"] == "at most" else "least"]} for claim in said]


def print_cell(name, cell):
    causal = "; ours causal, the peers without a mask" if cell["ours_causal"] else ""
    print(f"\n{name}: {cell['copies']} copies of K and V, {cell['launches_of_a_graph']} launches of a graph{causal}")
    columns = {READ_ONLY: "of read only", BEST: "of PyTorch's best"}
    print(f"  {'':26} {'verdict':8} {'µs':>8} {'min':>8} {'max':>8} {'TB/s':>6}" + "".join(f"{title:>23}" for title in columns.values()) + f"{'sustained µs':>14}")
    for contender in cell["contenders"]:
        times = "".join(f" {1e3 * contender['burst_ms'][of]:8.2f}" for of in SPREAD)
        of = [contender["of"].get(column) for column in columns]
        ratios = "".join(f"{s['median']:11.3f} {s['min']:.3f}–{s['max']:.3f}" if s else f"{'-':>23}" for s in of)
        print(f"  {contender['name']:26} {contender['verdict']:8}{times} {contender['tb_per_s']['median']:6.3f}{ratios}{1e3 * contender['sustained_ms']:14.2f}")
    for contender, reason in cell["refused"].items():
        print(f"  {contender:26} refused: {reason}")
    sys.stdout.flush()


def main(arguments=None):
    """The program; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variant", action="append", help="of the step; may be repeated (default: all that take the cell)")
    options, cells = parse_common(parser, arguments, CELLS, rounds=9, sustained_ms=40)
    library = load(parser, options, STEP)
    built = library.describe()
    known = [variant["name"] for variant in built["variants"]]
    for name in options.variant or []:
        if name not in known:
            parser.error(f"--variant: {STEP} has no variant '{name}' (it has: {', '.join(known)})")
    torch = import_torch()
    ran_on = machine(torch, "decoding_peers", built, options)
    print(f"{STEP} on {ran_on['name']}; PyTorch {ran_on['torch']}, cuDNN {ran_on['cudnn']}")
    results = {}
    try:
        for cell in cells:
            begin, names = time.monotonic(), variants_of(built, cell, options.variant)
            results[cell.name] = measure_cell(torch, library, names, cell, options, 1 + CELLS.index(cell))
            print_cell(f"{cell.name} ({time.monotonic() - begin:.0f} s)", results[cell.name])
    except (RuntimeError, Refused) as error:
        refuse(error)
    said = claims(results)
    head = {"machine": ran_on, "step": STEP, "variants": variants_of(built, cells[0], options.variant)}
    status = finish(options, results, said, head)
    for one in said:
        print(f"{'holds ' if one['holds'] else 'MISSED'} {one['what']}: {one['bound']} {one['target']}, {one['least']:.3f} to {one['most']:.3f}")
    return status


if __name__ == "__main__":
    sys.exit(main())
