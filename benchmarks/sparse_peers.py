"""Block-sparse attention: step 07 beside dense attention (steps 05 and 06, FlashAttention-2, cuDNN) and beside FlexAttention, in one run.

    python benchmarks/sparse_peers.py --json results/h200/sparse_peers.json

One sequence of 16384 tokens, fp16, blocks of 128 × 128. A cell is a pass, a head dim, causal or not, and a share p of live blocks; its
masks are of several kinds, and all of its contenders take turns. p of a mask is counted in the tiles that our kernels visit: of 128
queries × 64 keys forward, 64 × 128 backward. Our times include the plan, whose kernels are timed apart, too, by PyTorch's profiler. A second contender keeps
the plan from one launch to the next, as FlexAttention keeps its BlockMask.
FlexAttention gets the same blocks as a BlockMask, made before all times; only blocks on the diagonal of a causal mask are partial
there. Random masks run a second time "by mask_mod": the same blocks, but the mask_mod, which every BlockMask has for its partial blocks,
looks pairs up in a table, as one writes it who has a mask of blocks. Triton makes a slower kernel of it, though no full block calls it. Operations are those of pairs that are seen.

torch.compile makes FlexAttention's kernels once for each pass, head dim and causal or not: masks are data to them. That takes part of the
first cell's time; the report has the seconds (`compile_s`). Inputs are random normal. Each sparse result is checked in sampled rows of
every head against float64, and FlexAttention's against ours in all rows. What it needs, how contenders take turns, and its exit status:
peers.py. Flags choose cells: --cell "forward, d 64".
"""

import argparse
import contextlib
import ctypes
import itertools
import math
import sys
import time
from dataclasses import asdict, dataclass

import attention_peers
import backward_peers
import numpy as np
import peers
from peers import (
    TOKENS,
    WIDTH,
    Gpu,
    Gradients,
    Refused,
    Sparse,
    finish,
    first_line,
    import_torch,
    load,
    machine,
    parse_common,
    problem_of,
    refuse,
    sampled_rows,
    tensor_of,
)
from turns import Contender, entry, measure, ratios, spread

BLOCK = 128
OURS, FLEX, UNSPLIT = "ours", "FlexAttention", "ours without splitting"
KEPT = "ours with its plan kept"
BY_MOD = "FlexAttention by mask_mod"  # the same blocks; its mask_mod looks each pair up in a table, as users write it
VARIANTS = {False: "balanced", True: "backward"}  # of step 07: by pass
UNSPLIT_VARIANT = "tokens"  # the rung before `balanced`
DENSE, FA2, CUDNN = "dense, ours", "FlashAttention-2", "cuDNN"
DENSE_STEPS = {False: "05_flash_v2", True: "06_backward"}
STEP = "07_block_sparse"
TILES = {False: (128, 64), True: (64, 128)}  # queries and keys of a tile that our kernels visit
SHARES = (0.1, 0.25, 0.5, 1.0)
KINDS = ("random", "band", "uneven", "mixed")  # where p < 1; "all" where it is 1
FULL_ROW, FULL_COLUMN = "full row", "full column"  # one in each head: where p is at most 0.25
LONGEST = 4  # times the mean: no row of a mask is longer, but for full rows
APART = {False: 2**-8, True: 2**-7}  # what FlexAttention's results may differ from ours, as a share of the norm of a block of rows


# ---- masks ----


def visible_blocks(causal, blocks):
    """[blocks, blocks]: those that hold a pair that is seen."""
    return np.tri(blocks, dtype=bool) if causal else np.ones((blocks, blocks), bool)


def chosen(numbers, visible, shares):
    """[blocks, blocks]: of each row of visible blocks that row's share, the own block among them, others at random. Rows above 3 times the
    mean are cut there, so that none is above LONGEST times the mean of what is left."""
    live = np.zeros_like(visible)
    wanted = np.minimum(shares, 1) * visible.sum(1)
    for row, (seen, blocks) in enumerate(zip(visible, np.minimum(wanted, 3 * wanted.mean()), strict=True)):
        others = [column for column in np.flatnonzero(seen) if column != row]
        count = max(1, round(blocks))
        live[row, [row, *numbers.permutation(others)[: count - 1]]] = True
    return live


def band(visible, share):
    """[blocks, blocks]: blocks less than n away from the own block, with the n that comes closest to the share."""
    rows, columns = np.indices(visible.shape)
    bands = [visible & (abs(rows - columns) < n) for n in range(1, len(visible) + 1)]
    return min(bands, key=lambda live: abs(live.sum() / visible.sum() - share))


def make_mask(kind, share, causal, heads, seed, blocks=TOKENS // BLOCK):
    """Live blocks [heads, query blocks, key blocks], all of them visible.

    random: of each row the share; uneven: rows have from a quarter of it to 2.5 times as much; mixed: the share differs from head to head,
    from 0.4 to 1.6 times; full row, full column: random, and one row or column of each head has all, of those in the longer half."""
    numbers = np.random.default_rng([seed, round(100 * share), *kind.encode()])
    visible = visible_blocks(causal, blocks)
    live = np.zeros((heads, blocks, blocks), bool)
    for head in range(heads):
        shares = np.full(blocks, share)
        if kind == "uneven":
            shares *= 0.25 + 2.25 * numbers.random(blocks) ** 2
        if kind == "mixed":
            shares *= (0.4, 0.8, 1.2, 1.6)[head % 4]
        if kind == "all":
            live[head] = visible
        elif kind == "band":
            live[head] = band(visible, share)
        else:
            live[head] = chosen(numbers, visible, shares)
        if kind == FULL_ROW:
            row = numbers.integers(blocks // 2, blocks)
            live[head, row] = visible[row]
        if kind == FULL_COLUMN:
            column = numbers.integers(0, blocks // 2)
            live[head, :, column] = visible[:, column]
    return live


def tiles_visited(live, causal, tile_queries, tile_keys):
    """Tiles that hold a pair that is seen, of live blocks [heads, blocks, blocks]."""
    fine = np.repeat(np.repeat(live, BLOCK // tile_queries, axis=1), BLOCK // tile_keys, axis=2)
    if causal:
        rows, columns = np.indices(fine.shape[1:])
        fine = fine & (columns * tile_keys < (rows + 1) * tile_queries)
    return int(fine.sum())


def exact_share(live, causal, backward):
    """p: tiles visited over those that dense attention visits."""
    everything = np.broadcast_to(visible_blocks(causal, live.shape[1]), live.shape)
    return tiles_visited(live, causal, *TILES[backward]) / tiles_visited(everything, causal, *TILES[backward])


def seen_pairs(live, causal):
    """(query, key) pairs of all heads."""
    pairs = int(live.sum()) * BLOCK**2
    return pairs - int(live.diagonal(axis1=1, axis2=2).sum()) * BLOCK * (BLOCK - 1) // 2 if causal else pairs


def bits(live):
    """uint32 [1, heads, blocks, words], as library/attention_library.h has them."""
    words = -(-live.shape[2] // 32)
    padded = np.zeros((*live.shape[:2], 32 * words), bool)
    padded[:, :, : live.shape[2]] = live
    return np.packbits(padded, axis=2, bitorder="little").view("<u4").reshape(1, *live.shape[:2], words)


# ---- cells ----


@dataclass(frozen=True)
class Cell:
    backward: bool
    dim: int
    causal: bool
    share: float  # p, about: each mask has its own

    seq, batch, dtype = TOKENS, 1, "fp16"

    @property
    def heads(self):
        return WIDTH // self.dim

    @property
    def shape(self):
        return self.batch, self.heads, self.seq, self.dim

    @property
    def problem(self):
        return f"{'backward' if self.backward else 'forward'}, d {self.dim}{', causal' if self.causal else ''}"

    @property
    def name(self):
        return f"{self.problem}, p {self.share:g}"

    @property
    def kinds(self):
        if self.share == 1:
            return ["all"]
        full = [FULL_ROW] + [FULL_COLUMN] * self.backward if self.share <= 0.25 else []
        return [*KINDS, *full]

    def operations(self, pairs):
        return (10 if self.backward else 4) * self.dim * pairs


CELLS = [Cell(*problem) for problem in itertools.product((False, True), (64, 128), (False, True), SHARES)]


# ---- our side ----


class OurMask:
    """A mask of blocks for our library; lives as long as its programs are prepared and launched."""

    def __init__(self, torch, live, device="cuda"):
        self._words = bits(live)
        self._types = np.ones(len(live), np.int32)
        self._on_device = [torch.from_numpy(x.view(np.int32)).to(device) for x in (self._types, self._words)]
        types, words = (x.data_ptr() for x in self._on_device)
        self.sparse = Sparse(BLOCK, BLOCK, 1, types, self._types.ctypes.data, None, None, words, self._words.ctypes.data)

    def problem(self, *of_cell):
        made = problem_of(*of_cell)
        made.sparse = ctypes.addressof(self.sparse)
        return made


def plan_ms(torch, launch, repetitions=5):
    """The time of the plan's kernels in one launch, the mean of their sum, by PyTorch's profiler; None where it sees none. The plan is what
    step 07 launches of its own but for attention itself (sparse_…) and the merge of split rows."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as made:
        for _ in range(repetitions):
            launch()
        torch.cuda.synchronize()
    return sum(event.time_range.elapsed_us() for event in made.events() if is_of_plan(event.name)) / 1000 / repetitions or None


def is_of_plan(kernel):
    """Of a kernel's name as the profiler has it, with namespace and arguments."""
    before, of_step, name = kernel.partition("block_sparse::")
    return bool(of_step) and not set("<(") & set(before) and not name.startswith(("sparse_", "merge_"))


# ---- the other side ----


def seen_causally(b, h, q, k):
    return q >= k


def block_mask(torch, live, causal, device="cuda", mask_mod=None):
    """A BlockMask: blocks on a causal diagonal are partial, all others full. Without a mask_mod it has the least that is right."""
    from torch.nn.attention.flex_attention import BlockMask, noop_mask

    diagonal = np.eye(live.shape[1], dtype=bool) & causal

    def ordered(blocks):
        """How many [1, heads, rows], and their numbers first, in order [1, heads, rows, columns]."""
        counts, order = blocks.sum(2), np.argsort(~blocks, axis=2, kind="stable")
        return (torch.from_numpy(np.ascontiguousarray(x[None], dtype=np.int32)).to(device) for x in (counts, order))

    return BlockMask.from_kv_blocks(
        *ordered(live & diagonal), *ordered(live & ~diagonal), BLOCK_SIZE=BLOCK, mask_mod=mask_mod or (seen_causally if causal else noop_mask)
    )


class Lookup:
    """A mask_mod that looks a pair up in a table of blocks. One for a number of heads, and causal or not: FlexAttention compiles it once, and
    the table is filled anew for each cell."""

    def __init__(self):
        self._made = {}

    def __call__(self, torch, live, causal):
        """[heads, blocks, blocks] into its table; the mask_mod."""
        key = (live.shape[0], causal)
        if key not in self._made:
            table = torch.zeros(live.shape, dtype=torch.bool, device="cuda")

            def seen(b, h, q, k):
                return table[h, q // BLOCK, k // BLOCK] & (q >= k)

            def seen_both_ways(b, h, q, k):
                return table[h, q // BLOCK, k // BLOCK]

            self._made[key] = (table, seen if causal else seen_both_ways)
        table, mask_mod = self._made[key]
        table.copy_(torch.from_numpy(np.ascontiguousarray(live)))
        return mask_mod


class Flex:
    """FlexAttention. One compiled function for everything: what it makes of a shape and a mask_mod serves all masks."""

    def __init__(self, torch):
        import torch._dynamo
        import torch._functorch.config
        from torch.nn.attention.flex_attention import flex_attention

        torch._dynamo.config.recompile_limit = 64  # both passes × head dims × causal or not, which are compiled one by one
        torch._functorch.config.donated_buffer = False  # a backward pass that runs again and again keeps its graph
        self._torch, self._compiled = torch, torch.compile(flex_attention, dynamic=False)

    def prepare(self, mask, q, k, v, d_o=None):
        """A launch of the forward pass, or with d_o of the backward pass, which returns its results."""
        if d_o is None:

            def launch():
                with self._torch.no_grad():
                    return [self._compiled(q, k, v, block_mask=mask)]

            return launch
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        o = self._compiled(*leaves, block_mask=mask)
        return lambda: self._torch.autograd.grad(o, leaves, d_o, retain_graph=True)


def prepare_dense(torch, cell, which, q, k, v, d_o):
    """The same of one of PyTorch's dense kernels, which sees all pairs."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = getattr(SDPBackend, peers.PEERS[which])

    def attend(*tensors):
        with sdpa_kernel(backend):
            shared = tensors[0].shape[1] != tensors[1].shape[1]  # several heads share a key/value head
            return torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=cell.causal, enable_gqa=shared)

    if not cell.backward:
        return lambda: [attend(q, k, v)]
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    o = attend(*leaves)
    return lambda: torch.autograd.grad(o, leaves, d_o, retain_graph=True)


# ---- checks ----


def truth_of(torch, cell, live, q, k, v, d_o, rows):
    """live: [heads, blocks, blocks]; None: all."""
    blocks = None if live is None else torch.from_numpy(live).to(q.device)
    if not cell.backward:
        at = torch.tensor(rows, device=q.device) // BLOCK
        of_rows = None if blocks is None else blocks[:, at].repeat_interleave(BLOCK, 2)[None]
        return attention_peers.Truth(torch, q, k, v, cell.causal, rows, live=of_rows)
    of_heads = None if blocks is None else lambda begin, end: blocks[begin:end].repeat_interleave(BLOCK, 1).repeat_interleave(BLOCK, 2)
    return backward_peers.Truth(torch, q, k, v, d_o, cell.causal, rows, live=of_heads)


def apart(ones, others):
    """The largest norm of the difference over the norm of the ones, of blocks of rows of [batch, heads, seq, dim] tensors."""
    found = []
    for one, other in zip(ones, others, strict=True):
        difference, of_one = ((x.float().unflatten(2, (-1, BLOCK))).norm(dim=(-2, -1)) for x in (one.float() - other.float(), one))
        found.append((difference / of_one.clamp(min=1e-30)).max().item())
    return max(found) if all(map(math.isfinite, found)) else math.inf


# ---- a cell ----


class Turns:
    """A cell's contenders: some of all masks, dense, and some of one."""

    def __init__(self, cell):
        self._cell = cell
        self.contenders, self.refused, self.of_mask = [], {}, {}

    def enter(self, name, pairs, launch, worst_ratio, kind=None):
        full = f"{name}, {kind}" if kind else name
        verdict = "" if worst_ratio is None else "ok" if worst_ratio <= 1 else "WRONG"
        self.contenders.append(Contender(full, self._cell.operations(pairs), launch, verdict, worst_ratio))
        self.of_mask[full] = kind

    def as_json(self):
        named = {contender.name: contender for contender in self.contenders}
        entries = []
        for contender in self.contenders:
            kind = self.of_mask[contender.name]
            same_work = [named[name] for name in (f"{FLEX}, {kind}", f"{BY_MOD}, {kind}") if name in named and name != contender.name]
            made = entry(contender, same_work)
            if kind:
                made["mask"] = kind
                made["time_over"] = {name: spread(times_over(contender, named[name])) for name in (DENSE, FA2, CUDNN) if name in named}
            entries.append(made)
        return entries


def times_over(contender, dense):
    """Time over a dense contender's, in each round."""
    rescaled = contender.operations / dense.operations
    return [rescaled / speed for speed in ratios(contender, dense)]


def measure_cell(torch, libraries, flex, lookup, cell, options, seed):
    """The cell as JSON. libraries: {step: Library}."""
    torch.manual_seed(seed)
    q, k, v, d_o = (torch.randn(cell.shape, device="cuda", dtype=torch.float16) for _ in range(4))
    v += 0.5  # as in the steps' own inputs: outputs keep away from zero
    rows = sampled_rows(cell.seq, seed)
    results = [torch.empty_like(x) for x in (q, k, v)] if cell.backward else [torch.empty_like(q), torch.empty(cell.shape[:3], device="cuda")]
    turns, masks, used, compile_s = Turns(cell), {}, [], 0.0
    with contextlib.ExitStack() as held:
        held.callback(used.clear)  # only then may this memory serve others

        def ours(step, variant, mask=None, keep_plan=False):
            """A launch of a variant; its O and LSE, for the backward pass, are those of a forward pass with the same mask."""
            o, lse = results if not cell.backward else (torch.empty_like(q), torch.empty(cell.shape[:3], device="cuda"))
            of_cell = (cell, q, k, v, o, lse)
            problem = mask.problem(*of_cell) if mask else problem_of(*of_cell)
            used.extend((o, lse, mask))
            if not cell.backward:
                return held.enter_context(libraries[step].variant(variant, problem, keep_plan=keep_plan))[0]
            before = (STEP, VARIANTS[False]) if mask else (DENSE_STEPS[False], "tuned")
            with libraries[before[0]].variant(before[1], problem) as (launch, _):
                launch()
                torch.cuda.synchronize()
            gradients = Gradients(*(tensor_of(x) for x in (d_o, *results)))
            return held.enter_context(libraries[step].variant(variant, problem, gradients, keep_plan))[0]

        def checked(launch, truth):
            for result in results:
                result.fill_(math.nan)
            launch()
            return truth.worst_ratio(*results)

        everything = np.broadcast_to(visible_blocks(cell.causal, cell.seq // BLOCK), (cell.heads, cell.seq // BLOCK, cell.seq // BLOCK))
        pairs = seen_pairs(everything, cell.causal)
        truth = truth_of(torch, cell, None, q, k, v, d_o, rows)
        for which in (FA2, CUDNN):
            try:
                launch = prepare_dense(torch, cell, which, q, k, v, d_o)
                turns.enter(which, pairs, launch, truth.worst_ratio(*launch()))
            except RuntimeError as error:
                turns.refused[which] = first_line(error)
        launch = ours(DENSE_STEPS[cell.backward], "tuned")
        turns.enter(DENSE, pairs, launch, checked(launch, truth))
        for kind in cell.kinds:
            live = make_mask(kind, cell.share, cell.causal, cell.heads, seed)
            pairs = seen_pairs(live, cell.causal)
            truth = truth_of(torch, cell, live, q, k, v, d_o, rows)
            mask = OurMask(torch, live)
            if kind == FULL_ROW and not cell.backward:
                launch = ours(STEP, UNSPLIT_VARIANT, mask)
                turns.enter(UNSPLIT, pairs, launch, checked(launch, truth), kind)
            launch = ours(STEP, VARIANTS[cell.backward], mask)
            turns.enter(OURS, pairs, launch, checked(launch, truth), kind)
            masks[kind] = {
                "p": exact_share(live, cell.causal, cell.backward),
                "longest_row_over_mean": float(live.sum(2).max() / live.sum(2).mean()),
                "longest_column_over_mean": float(live.sum(1).max() / live.sum(1).mean()),
                "plan_ms": plan_ms(torch, launch),
            }
            of_ours = [x.clone() for x in results if x.dim() == 4]
            launch = ours(STEP, VARIANTS[cell.backward], mask, keep_plan=True)
            turns.enter(KEPT, pairs, launch, checked(launch, truth), kind)
            for name in (FLEX, BY_MOD) if kind in ("random", "all") else (FLEX,):
                try:
                    before = time.monotonic()
                    mask_mod = lookup(torch, live, cell.causal) if name == BY_MOD else None
                    made_mask = block_mask(torch, live, cell.causal, mask_mod=mask_mod)
                    launch = flex.prepare(made_mask, q, k, v, d_o if cell.backward else None)
                    made = launch()
                    torch.cuda.synchronize()
                    compile_s += time.monotonic() - before
                    difference = apart(of_ours, made)
                    if name == FLEX:
                        masks[kind]["flex_from_ours"] = difference
                    turns.enter(name, pairs, launch, max(truth.worst_ratio(*made), difference / APART[cell.backward]), kind)
                except RuntimeError as error:
                    turns.refused[f"{name}, {kind}"] = first_line(error)
        measure(turns.contenders, Gpu(torch), options.rounds, options.repetitions, options.pause_ms, options.sustained_ms)
    problem = {**asdict(cell), "heads": cell.heads, "seq": cell.seq}
    return {"problem": problem, "masks": masks, "contenders": turns.as_json(), "refused": turns.refused, "compile_s": compile_s}


# ---- claims ----


def figures(cells):
    """[(problem, kind, {figure: value})] of all our sparse results: p, time over the dense ones', speed over FlexAttention's."""
    found = []
    for cell in cells.values():
        for contender in cell["contenders"]:
            kind = contender.get("mask")
            if kind is None or contender["name"].startswith(FLEX):
                continue
            values = {f"over {name}": of["median"] for name, of in contender["time_over"].items()} | {"p": cell["masks"][kind]["p"]}
            for key, name in (("of flex", FLEX), ("of flex by mod", BY_MOD)):
                if speed := contender["of"].get(f"{name}, {kind}"):
                    values[key] = speed["median"]
            found.append((cell["problem"], contender["name"], kind, values))
    return found


def excess(values):
    return values[f"over {DENSE}"] - values["p"] if f"over {DENSE}" in values else None


def time_over_dense(values):
    return values.get(f"over {DENSE}")


def of_flex(values):
    return values.get("of flex")


def of_flex_by_mod(values):
    return values.get("of flex by mod")


def rules():
    """[(what, "at most" or "at least", target or None, of which (problem, kind), value of the figures, of which contender)]."""

    def made(what, bound, target, holds_of, value, contender=OURS):
        return what, bound, target, holds_of, value, contender

    each_kind = lambda problem, kind: kind in KINDS
    sparse = lambda problem, kind: problem["causal"] and problem["share"] < 1
    of = lambda backward, dim=None: lambda problem: problem["backward"] == backward and dim in (None, problem["dim"])
    both = lambda one, other=lambda problem, kind: True: lambda problem, kind: one(problem) and other(problem, kind)
    both_of = lambda one, other: lambda problem, kind: one(problem, kind) and other(problem, kind)
    is_kind = lambda wanted: lambda problem, kind: kind == wanted
    looked_up = lambda problem, kind: kind in ("random", "all")  # the masks that have it by mask_mod, too
    easy = lambda problem, kind: problem["share"] <= 0.1 or sparse(problem, kind)
    return [
        made("forward: time over dense, less p, the most", "at most", 0.03, both(of(False), each_kind), excess),
        made("backward: time over dense, less p, the most", "at most", 0.04, both(of(True), each_kind), excess),
        made("forward, all live: time over dense, the most", "at most", 1.015, both(of(False), is_kind("all")), time_over_dense),
        made("backward, all live: time over dense, the most", "at most", 1.04, both(of(True), is_kind("all")), time_over_dense),
        made("forward, one full row a head: time over dense, less p, the most", "at most", 0.05, both(of(False), is_kind(FULL_ROW)), excess),
        made("the same without splitting", "at most", None, both(of(False), is_kind(FULL_ROW)), excess, UNSPLIT),
        made("forward, plan kept: time over dense, less p, the most", "at most", None, both(of(False), each_kind), excess, KEPT),
        made("backward, plan kept: time over dense, less p, the most", "at most", None, both(of(True), each_kind), excess, KEPT),
        made("backward, one full row a head: the same", "at most", None, both(of(True), is_kind(FULL_ROW)), excess),
        made("backward, one full column a head: the same", "at most", None, both(of(True), is_kind(FULL_COLUMN)), excess),
        made("forward, d 64: speed over FlexAttention's, the least", "at least", 1.30, both(of(False, 64)), of_flex),
        made("backward, d 64: speed over FlexAttention's, the least", "at least", 1.15, both(of(True, 64)), of_flex),
        made("forward, d 128: speed over FlexAttention's, the least", "at least", 0.97, both(of(False, 128)), of_flex),
        made("the same where p is at most 0.1, or causal and sparse", "at least", 1.10, both(of(False, 128), easy), of_flex),
        made("backward, d 128: speed over FlexAttention's, the least", "at least", 0.90, both(of(True, 128)), of_flex),
        made("forward, d 64: speed over FlexAttention's by mask_mod, the least", "at least", 1.30, both(of(False, 64), looked_up), of_flex_by_mod),
        made("backward, d 64: speed over FlexAttention's by mask_mod, the least", "at least", 1.15, both(of(True, 64), looked_up), of_flex_by_mod),
        made("forward, d 128: speed over FlexAttention's by mask_mod, the least", "at least", 0.97, both(of(False, 128), looked_up), of_flex_by_mod),
        made("by mask_mod, forward, d 128, where p is at most 0.1, or causal and sparse", "at least", 1.10, both(of(False, 128), both_of(easy, looked_up)), of_flex_by_mod),
        made("backward, d 128: speed over FlexAttention's by mask_mod, the least", "at least", 0.90, both(of(True, 128), looked_up), of_flex_by_mod),
    ]


def break_even(points):
    """The share below which ours is faster: of [(p, time over dense)], between two points on the line through both. 1 where ours is faster
    everywhere, 0 where nowhere."""
    points = sorted(points)
    if points[0][1] >= 1:
        return 0.0
    for (p, one), (later, other) in itertools.pairwise(points):
        if other >= 1:
            return p + (later - p) * (1 - one) / (other - one)
    return 1.0


def claim(what, bound, target, values, missing):
    """One claim as JSON. `values`: {cell: value}. It holds where nothing is missing and every value, to six digits, reaches the target."""
    least, most = min(values.values()), max(values.values())
    value = most if bound == "at most" else least
    reached = target is None or (round(most, 6) <= target if bound == "at most" else round(least, 6) >= target)
    holds = None if target is None else bool(reached and not missing)
    return {"what": what, "value": value, "target": target, "bound": bound, "least": least, "most": most, "holds": holds, "cells": values, "missing": missing}


def claims(cells):
    """What may be said of step 07. `cells` as in the JSON; what they do not cover at all is left out, what they cover in part does not
    hold."""
    measured = figures(cells)
    said = []
    for what, bound, target, holds_of, value, contender in rules():
        values = {}
        for problem, name, kind, found in measured:
            if name == f"{contender}, {kind}" and holds_of(problem, kind) and value(found) is not None:
                values[f"{Cell(*(problem[key] for key in ('backward', 'dim', 'causal', 'share'))).name}, {kind}"] = value(found)
        demanded = [f"{cell.name}, {kind}" for cell in CELLS for kind in cell.kinds if holds_of(asdict(cell), kind)]
        if values:
            said.append(claim(what, bound, target, values, [name for name in demanded if name not in values]))
    for backward, other in itertools.product((False, True), (DENSE, FA2, CUDNN)):
        points = {}
        for problem, name, kind, found in measured:
            if problem["backward"] == backward and name.startswith(f"{OURS}, ") and kind in ("random", "all") and f"over {other}" in found:
                points.setdefault((problem["dim"], problem["causal"]), []).append((found["p"], found[f"over {other}"]))
        shares = {Cell(backward, *at, 1).problem: break_even(of) for at, of in points.items() if len(of) > 1}
        if shares:
            pass_ = "backward" if backward else "forward"
            said.append(claim(f"{pass_}: break-even share of live blocks beside {other}, random masks, the least", "at least", None, shares, []))
    return said


# ---- the program ----


def main(arguments=None):
    """The program; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options, cells = parse_common(parser, arguments, CELLS, rounds=5, repetitions=4, sustained_ms=10)
    libraries = {step: load(parser, options, step) for step in (*DENSE_STEPS.values(), STEP)}
    torch = import_torch()
    ran_on, flex, results = machine(torch, "sparse_peers", libraries[STEP].describe(), options), Flex(torch), {}
    lookup = Lookup()
    try:
        for cell in cells:
            begin = time.monotonic()
            results[cell.name] = measured = measure_cell(torch, libraries, flex, lookup, cell, options, 1 + CELLS.index(cell))
            print(f"\n{cell.name} ({time.monotonic() - begin:.1f} s, of which FlexAttention's first calls took {measured['compile_s']:.1f})")
            for contender in measured["contenders"]:
                over = contender.get("time_over", {}).get(DENSE)
                text = f" {over['median']:.4f} of dense, p {measured['masks'][contender['mask']]['p']:.4f}" if over else ""
                print(f"  {contender['name']:36} {contender['verdict']:6} {contender['burst_ms']['median']:8.4f} ms{text}")
            for refused, reason in measured["refused"].items():
                print(f"  {refused:36} refused: {reason}")
            sys.stdout.flush()
    except (RuntimeError, Refused) as error:
        refuse(error)
    said = claims(results)
    status = finish(options, results, said, {"machine": ran_on, "tokens": TOKENS, "block": BLOCK, "variants": [VARIANTS[False], VARIANTS[True], UNSPLIT_VARIANT]})
    for one in said:
        if one["holds"] is not None:
            print(f"{'holds ' if one['holds'] else 'MISSED'} {one['what']}: {one['bound']} {one['target']}, {one['least']:.4f} to {one['most']:.4f}")
    return status


if __name__ == "__main__":
    sys.exit(main())
