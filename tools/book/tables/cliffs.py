"""Inputs that cost more than others, by benchmarks/cliffs.py."""

from tools.book.tables.registry import markdown, measured_table


@measured_table("odd_elements")
def odd_elements_table(run, direction):
    """What an ∞, a NaN or the like in one element costs (benchmarks/cliffs.py): the time over that of clean input, at most, by input and place."""
    most = {}  # {place: {input: ratio}}
    for row in run.read("cliffs.json")["groups"]["values"]:
        of, element, *place = row["name"].split(", ")
        if of == direction:
            ratios, name = most.setdefault(", ".join(place), {}), element.split()[0]
            ratios[name] = max(ratios.get(name, 0), row["ratio"])
    inputs = [name for name in ("Q", "K", "V", "dO") if any(name in ratios for ratios in most.values())]
    rows = [[place, *(f"{ratios[name]:.2f}" if name in ratios else "-" for name in inputs)] for place, ratios in most.items()]
    return markdown(["odd element in", *inputs], rows, "l" + "r" * len(inputs))


@measured_table("shared_heads")
def shared_heads_table(run):
    """The backward pass where heads share a key/value head (benchmarks/cliffs.py): the speed over FlashAttention-2, and in brackets over a
    group that is not split over blocks."""
    cells = {}  # {heads and tokens: {dim and mask: {what it is compared with: speed}}}
    for row in run.read("cliffs.json")["groups"]["shared heads"]:
        heads, tokens, *problem = row["name"].removeprefix("backward, 1 × ").split(", ")
        cells.setdefault(f"{heads}, {tokens}", {}).setdefault(", ".join(problem), {})[row["of"]] = 1 / row["ratio"]
    problems = list(dict.fromkeys(problem for row in cells.values() for problem in row))
    of = lambda speeds: f"{speeds['FlashAttention-2']:.2f} ({speeds['heads that are not split over blocks']:.1f})"
    rows = [[name, *(of(row[problem]) for problem in problems)] for name, row in cells.items()]
    return markdown(["query heads / key/value heads", *problems], rows, "l" + "r" * len(problems))
