"""What step 08 tells the tools, the shapes at which it is measured among it. tools/measure/shapes.py says what each name is for."""

FIXED = {
    "smallest": ["--m", "1", "--n", "64", "--k", "64"],
    "tour": ["--m", "7", "--n", "1152", "--k", "384", "--bias"],
    "ragged": ["--m", "5", "--n", "77", "--k", "88", "--channels", "2", "--weight-channels", "1", "--dtype-a", "fp32", "--activation", "gelu"],
}

# The loop that requests the first weights has changed since it was counted; and of this tile nvcc multiplies slots that are not there, too:
# twice the mma where k has one line.
CHANGED = ["tuned_alone"]

# Each kernel that is compiled, by the types of weights and tokens and by m, with each type of C; every activation; with and without a bias.
TYPES = [["--dtype", dtype, *more] for dtype in ("fp16", "bf16") for more in ([], ["--dtype-a", "fp32"])]
ENDS = [["--dtype-c", "fp32", "--bias", "--activation", "relu"], ["--dtype-c", "fp16", "--activation", "silu"], ["--dtype-c", "bf16", "--activation", "gelu"]]
REACHED = [
    ["--m", m, *sizes, *types, *end]
    for types in TYPES
    for end in ENDS
    for m, sizes in [
        *[(m, ["--n", "70", "--k", "520"]) for m in ("1", "2", "4", "8", "16")],
        # tiles of `tuned`: by rows and k, for 132 multiprocessors
        *[(m, ["--n", n, "--k", "264", "--variant", "tuned"]) for m in ("8", "16") for n in ("2112", "8448")],
        # both counts of pairs at a time; experts_tiled takes no tokens of fp32
        *[(m, ["--n", "70", "--k", "1104", "--experts", "4", "--top", "2"]) for m in ("8", "20")],
    ]
]

NOT_COMPARED = (
    "of 1,231 lines 92 differ. nvcc joins the stores of C in fp16 and in bf16 (epilogue.cuh) and loads of neighbouring counts (route, scan_counts), gives some loads "
    "of tokens the line of their function (11_experts.cuh), and does not say that a store goes to a neighbour's shared memory (08_cluster.cuh)"
)

LARGE = ["--n", "4096", "--k", "4096"]
PROFILED = {"4k, 1 token": ["--m", "1", *LARGE], "4k, 16 tokens": ["--m", "16", *LARGE]}

SANITIZED = [
    ["--m", "5", "--n", "77", "--k", "88", "--samples", "2", "--weight-samples", "1", "--bias", "--activation", "silu"],
    ["--m", "1", "--n", "289", "--k", "264", "--dtype", "bf16", "--ldc", "291"],
    ["--m", "19", "--n", "77", "--k", "88", "--experts", "8", "--top", "2", "--bias", "--activation", "gelu"],
]

# A benchmark repeats a launch over the same arrays. These weights have 268 MB: L2 keeps no part that matters.
# --m=1 is one word: make sass looks at the kernels of smaller shapes, but here m chooses the kernel.
BENCHED = {f"16k × 8k, {m} token{'s' if m > 1 else ''}": [f"--m={m}", "--n", "16384", "--k", "8192"] for m in (1, 8, 16)}

RUNGS_AT = ["16k × 8k, 1 token"]
SHOWN_AT = ["16k × 8k, 1 token", "16k × 8k, 16 tokens"]

# µs that were aimed at, with 1, 8 and 16 tokens: those of prototypes on an H100, of many the fastest in each cell.
AIMED = {  # without a dependent launch, with one
    (4096, 4096): ((13.8, 13.8, 15.5), (13.0, 13.2, 13.8)),
    (14336, 4096): ((41.1, 42.5, 44.1), (39.3, 41.2, 42.2)),
    (4096, 14336): ((42.2, 42.8, 45.4), (40.6, 41.6, 43.4)),
    (896, 896): ((2.5, 2.5, 2.8), (1.5, 1.6, 2.3)),
    (4864, 896): ((5.1, 5.3, 6.3), (3.1, 3.4, 4.0)),
}
TOKENS = (1, 8, 16)


def at(n, k, m):
    return f"{n} × {k}, {m} token{'s' if m > 1 else ''}"


# KB that these variants, which take one token, have in flight on an SM, at most. docs/images/bytes_in_flight.svg shows them where memory is all that matters.
IN_FLIGHT = {"in_flight_8k": 8, "in_flight_16k": 16, "wide_loads": 32, "in_flight_64k": 64}


def beside_cublas(n, k, m):
    variants = ["tensor_cores", "row_groups", "cluster", "tuned", "tuned_alone"]
    return [*variants, *IN_FLIGHT] if m == 1 and n * k >= 4096 * 4096 else variants


ROUTED = [(8, 2, 8), (64, 8, 1), (64, 8, 16), (64, 8, 128), (64, 8, 256), (64, 8, 512), (64, 8, 4096)]  # experts, top, tokens; each expert has 4096 × 4096 weights
SORTED = [(8, 2, 64), (8, 2, 512), (64, 8, 512), (64, 8, 1024), (64, 8, 2048), (64, 8, 4096), (256, 8, 4096), (256, 8, 32768)]


def routed(experts, top, m):
    return f"{m} token{'s' if m > 1 else ''}, {top} of {experts} experts"


def sorts(experts, top, m):
    return f"sort of {m * top} ids, {experts} experts"


def of_experts(experts, top, m):
    return ["--experts", str(experts), "--top", str(top), "--m", str(m), "--rounds", "9"]


CONTENDERS = {
    "few_tokens_peers": {  # beside cuBLAS and a kernel that only reads
        at(n, k, m): (["--m", str(m), "--n", str(n), "--k", str(k), "--rounds", "9"], beside_cublas(n, k, m)) for n, k in AIMED for m in TOKENS
    },
    "experts_peers": {  # beside both ways of calling cuBLAS, and the sort alone
        **{routed(*case): (of_experts(*case), []) for case in ROUTED},
        **{sorts(*case): ([*of_experts(*case), "--sort-only"], []) for case in SORTED},
    },
}


def few_tokens_claims(shapes):
    """[(what, "at most" or "at least", target, {cell: value})] of what few_tokens_peers measured."""
    measured = {cell: {one["name"]: one for one in report["contenders"]} for cell, report in shapes.items()}

    def share(variant, of, cells):
        return {cell: measured[cell][variant][of]["median"] for cell in cells if cell in measured}

    def over_aim(variant, column):
        aims = {at(*size, m): us for size, both in AIMED.items() for m, us in zip(TOKENS, both[column], strict=True)}
        return {cell: 1e3 * measured[cell][variant]["burst_ms"]["median"] / us for cell, us in aims.items() if cell in measured}

    every = [at(*size, m) for size in AIMED for m in TOKENS]
    hard = at(4864, 896, 16)
    large = [at(n, k, m) for n, k in AIMED for m in TOKENS if n * k >= 4096 * 4096]
    return [
        ("`tuned`: speed over cuBLAS's, the least", "at least", 0.99, share("tuned", "of_cublas", every)),
        ("`tuned_alone`: the same, but for the next line", "at least", 0.95, share("tuned_alone", "of_cublas", [cell for cell in every if cell != hard])),
        (f"`tuned_alone` at {hard}", "at least", 0.85, share("tuned_alone", "of_cublas", [hard])),
        ("`tuned`: time over what was aimed at, the most", "at most", 1.03, over_aim("tuned", 1)),
        ("`tuned_alone`: the same", "at most", 1.03, over_aim("tuned_alone", 0)),
        ("`tuned_alone` from 4096 × 4096 on: speed over the reader's, the least", "at least", 0.95, share("tuned_alone", "of_read_only", large)),
    ]


def experts_claims(shapes):
    """The same of experts_peers."""

    def us(variant, cells):
        times = {cell: {one["name"]: 1e3 * one["burst_ms"]["median"] for one in shapes[cell]["contenders"]} for cell in cells if cell in shapes}
        return {cell: of[variant] for cell, of in times.items() if variant in of}

    few_ids = [name(*case) for name, cases in ((routed, ROUTED), (sorts, SORTED)) for case in cases if case[1] * case[2] <= 512 * 8]
    return [
        (f"`experts_unsorted`, {routed(8, 2, 8)}: µs", "at most", 85, us("experts_unsorted", [routed(8, 2, 8)])),
        ("`route` up to 4,096 ids: µs, the most", "at most", 4, us("route", few_ids)),
    ]


CLAIMS = {"few_tokens_peers": few_tokens_claims, "experts_peers": experts_claims}
# time_at: of that run's shapes, the one whose time the README shows, where no benchmark of the step alone is committed: those find their weights in L2.
SPEED_OVER = {"run": "few_tokens_peers", "share": "of_cublas", "of": "cuBLAS, whose launches wait for each other", "shapes": "", "time_at": at(4096, 4096, 1)}
