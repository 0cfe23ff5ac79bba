"""Steps beside other people's kernels, each in one run; and what such a run claims."""

from tools.book.tables.registry import TableError, markdown, measured_table
from tools.measure.shapes import OF_STEP


def peers_table(run, program, kind, base, share, work, unit):
    """A benchmark's contenders at each shape: the rate in bursts with the share of the first contender's, or sustained."""
    if kind not in ("burst", "sustained"):
        raise TableError(f"{program}: {kind} is neither burst nor sustained")
    if not run.has(f"{program}.json"):
        return ""
    shapes = run.read(f"{program}.json")["shapes"]
    columns = {name: {c["name"]: c for c in measured["contenders"]} for name, measured in shapes.items()}
    wrong = [  # the base computes nothing that could be checked
        (name, c) for name, column in columns.items() for c, of in column.items() if of["verdict"] != "ok" and c != base
    ]
    if wrong:
        raise TableError(f"{program}.json: the result of {wrong[0][1]} is wrong at {wrong[0][0]}")

    def cell(contender):
        if contender is None:
            return "-"
        ms = contender["burst_ms"]["median"] if kind == "burst" else contender["sustained_ms"]
        rate = f"{contender[work] / ms * 1e-9:.3g}"
        return f"{rate} ({contender[share]['median']:.3f})" if kind == "burst" else rate

    names = dict.fromkeys(name for column in columns.values() for name in column)
    rows = [[name, *(cell(column.get(name)) for column in columns.values())] for name in names]
    of_base = f" (share of the {base.split(' ', 1)[0]})"
    return markdown([unit + (of_base if kind == "burst" else ", sustained"), *columns], rows, "l" + "r" * len(columns))


@measured_table("gemm_peers")
def gemm_peers_table(run, kind):
    """Step 02, cuBLAS and the roof of mma.sync in one run."""
    return peers_table(run, "gemm_peers", kind, "roof of mma.sync", "of_roof", "operations", "TFLOP/s")


@measured_table("softmax_peers")
def softmax_peers_table(run, kind):
    """Step 03 and a copy of the same bytes in one run: x read once and y written once over the time."""
    return peers_table(run, "softmax_peers", kind, "copy", "of_copy", "bytes", "TB/s")


ROOF, READ_ONLY = "roof of mma.sync", "read only"  # these compute nothing that could be checked
OTHERS = {"FlashAttention-2": "FA2", "cuDNN": "cuDNN", "memory-efficient": "memory-efficient"}  # as the columns call them


def torch_peers(run, program, may_be_wrong=()):
    """(cells, variants) of PROGRAM.json: {name: {contender: entry}}; nothing before it is committed. TableError where a result was
    wrong, but of those that `may_be_wrong`."""
    if not run.has(f"{program}.json"):
        return {}, []
    report = run.read(f"{program}.json")
    cells = {name: {c["name"]: c for c in measured["contenders"]} for name, measured in report["cells"].items()}
    for name, contenders in cells.items():
        for contender, entry in contenders.items():
            if entry["verdict"] != "ok" and contender not in (ROOF, READ_ONLY, *may_be_wrong):
                raise TableError(f"{program}.json: the result of {contender} is wrong at {name}")
    return cells, report["variants"]


def over(entry, other):
    """The speed over another one's, with its spread."""
    of = (entry or {"of": {}})["of"].get(other)
    return f"{of['median']:.2f} ({of['min']:.2f}–{of['max']:.2f})" if of else "-"


def torch_peers_table(run, program, kind):
    """A step beside PyTorch's kernels, in one run: TFLOP/s in bursts with the speed over the others', or sustained with the clock. The
    figures of others and of the roof are of the first variant."""
    if kind not in ("burst", "sustained"):
        raise TableError(f"{program}: {kind} is neither burst nor sustained")
    cells, variants = torch_peers(run, program)
    if not cells:
        return ""

    def rate(entry):
        if entry is None:
            return "-"
        if kind == "burst":
            return f"{entry['tflops']['median']:.0f}"
        return f"{entry['sustained_tflops']:.0f}" + (f" ({entry['sm_clock_mhz']})" if entry["sm_clock_mhz"] else "")

    contenders = [*variants, *OTHERS] + ([ROOF] if kind == "sustained" else [])
    compared = [*OTHERS][:2] + [ROOF] if kind == "burst" else []
    rows = [
        [name, *(rate(cell.get(contender)) for contender in contenders), *(over(cell.get(variants[0]), other) for other in compared)]
        for name, cell in cells.items()
    ]
    title = "TFLOP/s, bursts" if kind == "burst" else "TFLOP/s, sustained (SM clock, MHz)"
    called = {variant: f"`{variant}`" for variant in variants} | OTHERS | {ROOF: "the roof"}
    names = [*(called[contender] for contender in contenders), *(f"of {called[other]}" for other in compared)]
    return markdown([title, *names], rows, "l" + "r" * len(names))


@measured_table("attention_peers")
def attention_peers_table(run, kind):
    """Step 05."""
    return torch_peers_table(run, "attention_peers", kind)


@measured_table("backward_peers")
def backward_peers_table(run, kind):
    """Step 06."""
    return torch_peers_table(run, "backward_peers", kind)


def claims_table(run, program, may_be_wrong=()):
    """What that run says of the first variant, beside what was aimed at."""
    cells, _ = torch_peers(run, program, may_be_wrong)
    if not cells:
        return ""
    claims = run.read(f"{program}.json")["claims"]
    rows = [[claim["what"], f"{claim['target']:.2f}" if claim["target"] else "-", f"{claim['value']:.3f}"] for claim in claims]
    return markdown(["what", "at least", "measured"], rows, "lrr")


@measured_table("attention_claims")
def attention_claims_table(run):
    """Step 05."""
    return claims_table(run, "attention_peers")


@measured_table("backward_claims")
def backward_claims_table(run):
    """Step 06."""
    return claims_table(run, "backward_peers")


@measured_table("packed")
def packed_table(run, which):
    """Packed sequences beside padding and FlashAttention-2's kernels for packed ones, of the forward or of the backward pass: times in
    bursts, and speeds over the others'."""
    if which not in ("forward", "backward"):
        raise TableError(f"packed: {which} is neither forward nor backward")
    if not run.has("packed_peers.json"):
        return ""
    report = run.read("packed_peers.json")
    rows = []
    for name, measured in report["cells"].items():
        if measured["problem"]["backward"] != (which == "backward"):
            continue
        contenders = {c["name"]: c for c in measured["contenders"]}
        if wrong := [contender for contender, entry in contenders.items() if entry["verdict"] == "WRONG"]:
            raise TableError(f"packed_peers.json: the result of {wrong[0]} is wrong at {name}")
        ours, others = contenders["packed"], [contenders.get(other) for other in ("padded", "FlashAttention-2, packed")]
        texts = f"{len(report['lengths'][measured['problem']['lengths']])} texts of {'any' if measured['problem']['lengths'] == 'mixed' else 'equal'} length"
        masked = ", causal" if measured["problem"]["causal"] else ""
        times = [f"{entry['burst_ms']['median']:.3f}" if entry else "-" for entry in (ours, *others)]
        speeds = [f"{ours['of'][entry['name']]['median']:.2f}" if entry else "-" for entry in others]
        rows.append([f"{texts}, d {measured['problem']['dim']}{masked}", *times, *speeds])
    return markdown(["ms", "packed", "padded", "FA2, packed", "of padded", "of FA2"], rows, "lrrrrr")


DROPOUT_MAY_BE_WRONG = ["memory-efficient"]  # it is, in one cell: page 06 says where


@measured_table("dropout")
def dropout_table(run, which):
    """Dropout beside PyTorch's kernels with dropout, of the forward or of the backward pass: TFLOP/s in bursts, the speed over
    FlashAttention-2's, and what dropout costs."""
    if which not in ("forward", "backward"):
        raise TableError(f"dropout: {which} is neither forward nor backward")
    cells, variants = torch_peers(run, "dropout_peers", may_be_wrong=DROPOUT_MAY_BE_WRONG)

    def rate(entry):
        if entry is None:
            return "-"
        return f"{entry['tflops']['median']:.0f}" if entry["verdict"] == "ok" else "wrong"

    rows = []
    for name, cell in cells.items():
        if not name.startswith(which):
            continue
        ours = cell.get(variants[0])
        rates = [rate(entry) for entry in (ours, *(cell.get(other) for other in OTHERS))]
        without = ours and ours["of"].get(variants[1])
        price = f"{1 / without['median']:.2f}" if without else "-"
        rows.append([name.removeprefix(f"{which}, "), *rates, over(ours, "FlashAttention-2"), over(ours, "cuDNN"), price])
    if not rows:
        return ""
    names = [f"`{variants[0]}`", *OTHERS.values(), "of FA2", "of cuDNN", "time, of that without"]
    return markdown(["TFLOP/s with dropout", *names], rows, "l" + "r" * len(names))


@measured_table("dropout_claims")
def dropout_claims_table(run):
    """Steps 05 and 06."""
    return claims_table(run, "dropout_peers", DROPOUT_MAY_BE_WRONG)


@measured_table("sparse_peers")
def sparse_peers_table(run, which, dim):
    """Block-sparse attention beside dense attention and FlexAttention, of the forward or of the backward pass, at a head dim: times in bursts,
    time over dense, and speed over FlexAttention's. p is the share of tiles that are visited."""
    if which not in ("forward", "backward") or dim not in ("64", "128"):
        raise TableError(f"sparse_peers: {which} {dim} is none of forward and backward with 64 or 128")
    cells, _ = torch_peers(run, "sparse_peers")
    if not cells:
        return ""
    rows = []
    any_kept = any(name.startswith("ours with its plan kept") for cell in cells.values() for name in cell)
    for name, measured in run.read("sparse_peers.json")["cells"].items():
        problem = measured["problem"]
        if (problem["backward"], problem["dim"]) != (which == "backward", int(dim)):
            continue
        for kind, mask in measured["masks"].items():
            ours, kept, flex = (cells[name].get(f"{contender}, {kind}") for contender in ("ours", "ours with its plan kept", "FlexAttention"))
            if ours is None:
                continue
            dense = ours["time_over"].get("dense, ours")
            rows.append(
                [
                    f"{kind}{', causal' if problem['causal'] else ''}",
                    f"{mask['p']:.3f}",
                    f"{ours['burst_ms']['median']:.3f}",
                    f"{mask['plan_ms']:.3f}" if mask["plan_ms"] else "-",
                    *([f"{kept['burst_ms']['median']:.3f}" if kept else "-"] if any_kept else []),
                    f"{dense['median']:.3f} ({dense['min']:.3f}–{dense['max']:.3f})" if dense else "-",
                    f"{dense['median'] - mask['p']:+.3f}" if dense else "-",
                    f"{flex['burst_ms']['median']:.3f}" if flex else "-",
                    over(ours, f"FlexAttention, {kind}"),
                ]
            )
    names = ["p", "ms", "plan's kernels, ms", *(["with the plan kept, ms"] if any_kept else []), "time over dense", "less p", "FlexAttention, ms", "of FlexAttention"]
    return markdown([f"{which}, d {dim}", *names], rows, "l" + "r" * len(names))


def verdicts_table(claims):
    """Claims with a bound on each cell: what was aimed at, what was measured, and whether the claim holds."""
    verdict = {True: "holds", False: "missed", None: "-"}
    rows = [
        [
            claim["what"],
            f"{claim['bound']} {claim['target']:g}" if claim["target"] is not None else "-",
            f"{claim['least']:.3f}–{claim['most']:.3f}",
            len(claim["cells"]),
            verdict[claim["holds"]],
        ]
        for claim in claims
    ]
    return markdown(["what", "target", "measured", "cells", "verdict"], rows, "lrrrl")


@measured_table("sparse_claims")
def sparse_claims_table(run):
    """Step 07: what that run says, beside what was aimed at, and whether it holds."""
    cells, _ = torch_peers(run, "sparse_peers")
    return verdicts_table(run.read("sparse_peers.json")["claims"]) if cells else ""


def few_tokens_cells(run):
    """{shape: {contender: entry}} of few_tokens_peers.json; the fastest of cublasLt's algorithms is called "cublasLt"."""
    if not run.has("few_tokens_peers.json"):
        return {}
    cells = {
        shape: {one["name"].partition(",")[0]: one for one in measured["contenders"]}
        for shape, measured in run.read("few_tokens_peers.json")["shapes"].items()
    }
    for shape, cell in cells.items():
        for name, one in cell.items():
            if one["verdict"] != "ok" and name != "read only":  # which computes nothing that could be checked
                raise TableError(f"few_tokens_peers.json: the result of {name} is wrong at {shape}")
    return cells


@measured_table("few_tokens_peers")
def few_tokens_peers_table(run):
    """Step 08, cuBLAS and a kernel that only reads, in one run: µs of a launch in bursts, and speeds over cuBLAS's."""
    cells = few_tokens_cells(run)
    if not cells:
        return ""
    us = lambda one: f"{1e3 * one['burst_ms']['median']:.2f}" if one else "-"
    over_cublas = lambda one: f"{one['of_cublas']['median']:.2f}" if one else "-"
    others = {"read only": "read only", "cuBLAS": "cuBLAS", "cublasLt": "best of cublasLt"}
    in_flight = OF_STEP["08_few_tokens"]["IN_FLIGHT"]  # these have a picture
    variants = [name for name in dict.fromkeys(name for cell in cells.values() for name in cell) if name not in {**others, **in_flight}]
    compared = [name for name in variants if name.startswith("tuned")]
    rows = [
        [shape, *(us(cell.get(name)) for name in [*others, *variants]), *(over_cublas(cell.get(name)) for name in compared)]
        for shape, cell in cells.items()
    ]
    names = [*others.values(), *(f"`{name}`" for name in variants), *(f"speed of `{name}` over cuBLAS's" for name in compared)]
    return markdown(["µs a launch", *names], rows, "l" + "r" * len(names))


@measured_table("few_tokens_claims")
def few_tokens_claims_table(run):
    """Step 08: what that run says, beside what was aimed at."""
    return verdicts_table(run.read("few_tokens_peers.json")["claims"]) if few_tokens_cells(run) else ""


DECODING_SHOWN = ["whole_rows", "stream_k", "cluster", "tuned", "tuned_dependent"]  # of step 09's variants; the others are rungs of these
BEST = "best of PyTorch's"


def faster_way(cell, name):
    """Of a kernel of PyTorch's that a cell has twice, with the problem by itself and with query heads as rows: the entry of the faster one."""
    ways = [entry for contender, entry in cell.items() if contender.partition(",")[0] == name]
    return min(ways, key=lambda entry: entry["burst_ms"]["median"], default=None)


@measured_table("decoding_peers")
def decoding_peers_table(run):
    """Step 09, the faster way of each of PyTorch's kernels, and a kernel that only reads, in one run: µs of a launch in bursts, and speeds over
    the fastest of PyTorch's."""
    cells, variants = torch_peers(run, "decoding_peers")
    if not cells:
        return ""
    us = lambda one: f"{1e3 * one['burst_ms']['median']:.1f}" if one else "-"
    over_best = lambda one: f"{one['of'][BEST]['median']:.3f}" if one and BEST in one["of"] else "-"
    others = {READ_ONLY: READ_ONLY} | {name: OTHERS[name] for name in ("FlashAttention-2", "cuDNN")}
    shown = [name for name in DECODING_SHOWN if name in variants]
    compared = [name for name in shown if name.startswith("tuned")]
    rows = [
        [name, *(us(faster_way(cell, other)) for other in others), *(us(cell.get(variant)) for variant in shown), *(over_best(cell.get(variant)) for variant in compared)]
        for name, cell in cells.items()
    ]
    names = [*others.values(), *(f"`{variant}`" for variant in shown), *(f"speed of `{variant}` over the {BEST}" for variant in compared)]
    return markdown(["µs a launch", *names], rows, "l" + "r" * len(names))


@measured_table("decoding_claims")
def decoding_claims_table(run):
    """Step 09: what that run says, beside what was aimed at."""
    cells, _ = torch_peers(run, "decoding_peers")
    return verdicts_table(run.read("decoding_peers.json")["claims"]) if cells else ""


def experts_cells(run):
    """[(problem, {contender: µs of a launch})] of experts_peers.json."""
    if not run.has("experts_peers.json"):
        return []
    cells = []
    for shape, measured in run.read("experts_peers.json")["shapes"].items():
        if wrong := [one["name"] for one in measured["contenders"] if one["verdict"] == "WRONG"]:
            raise TableError(f"experts_peers.json: the result of {wrong[0]} is wrong at {shape}")
        cells.append((measured["problem"], {one["name"]: 1e3 * one["burst_ms"]["median"] for one in measured["contenders"]}))
    return cells


@measured_table("experts_peers")
def experts_peers_table(run, which):
    """Products routed to experts beside cuBLAS: µs of a launch; or the sort of the pairs alone."""
    if which not in ("products", "route"):
        raise TableError(f"experts_peers: {which} is neither products nor route")
    cells = [cell for cell in experts_cells(run) if cell[0]["sort_only"] == (which == "route")]
    if not cells:
        return ""
    others = {"read only", "cuBLAS, a call for each expert", "cuBLAS, grouped"}
    contenders = list(dict.fromkeys(name for _, us in cells for name in us))
    sizes = {"experts": "experts", "top": "top", "tokens": "m"} | ({"named": "experts_named"} if which == "products" else {})
    ids = lambda problem: [f"{problem['m'] * problem['top']:,}"] if which == "route" else []
    rows = [
        [*(f"{problem[size]:,}" for size in sizes.values()), *ids(problem), *(f"{us[name]:.1f}" if name in us else "-" for name in contenders)]
        for problem, us in cells
    ]
    header = [*sizes, *(["ids"] if which == "route" else []), *(name if name in others else f"`{name}`" for name in contenders)]
    return markdown(header, rows, "r" * len(header))


@measured_table("experts_claims")
def experts_claims_table(run):
    """What that run says, beside what was aimed at."""
    return verdicts_table(run.read("experts_peers.json")["claims"]) if experts_cells(run) else ""


@measured_table("training")
def training_table(run):
    """How far the losses of a training run are from each other, at most of its steps; empty until training.json is there."""
    if not run.has("training.json"):
        return ""
    losses = {(one["attention"], one["dtype"], one["dropout_of_256"]): one["losses"] for one in run.read("training.json")["runs"]}

    def apart(one, other):
        return f"{max(abs(a - b) / b for a, b in zip(losses[one], losses[other], strict=True)):.1e}"

    rows = []
    for attention, dtype, dropout in losses:
        if attention != "flashsteps":
            continue
        ours, torch, double = (attention, dtype, dropout), ("torch", dtype, dropout), ("double", "fp64", dropout)
        name = f"{dtype}, dropout {dropout}/256" if dropout else f"{dtype}, no dropout"
        rows.append([name, apart(ours, torch), apart(ours, double), apart(torch, double), f"{losses[ours][0] / losses[ours][-1]:.1f}"])
    return markdown(["relative difference of the loss, at most", "ours, from PyTorch's", "ours, from double", "PyTorch's, from double", "first loss over the last"], rows, "lrrrr")


@measured_table("measured_on")
def measured_on(run, program):
    """The machine of a benchmark beside PyTorch's kernels, and where its numbers are."""
    file = f"{program}.json"
    m = run.read(file)["machine"]
    cudnn = f"{m['cudnn'] // 10000}.{m['cudnn'] // 100 % 100}.{m['cudnn'] % 100}"
    torch = m["torch"].partition("+")[0]
    return f"One {m['name']}, {m['date'][:10]}: CUDA {m['nvcc']}, driver {m['driver_version']}, PyTorch {torch}, cuDNN {cudnn}. The numbers: `{run.path(file)}`."
