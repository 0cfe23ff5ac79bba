"""Mutants, from what `make mutate UPDATE=1` wrote."""

from tools.book.tables.registry import markdown, table
from tools.measure.committed import read_json

WRONG = "wrong result"  # what the checker says; all else in a mutant's "by" is the simulator's, a test's, or how the program ended
FAILED = "failed test"
ENDED = ("hang", "crash", "refused", "compiler")
DONE = {"remove": "calls removed", "weaken": "waits weakened", "swap": "parts swapped", "shift": "indices shifted"}


def mutation_results(root, step):
    return read_json(root, f"results/mutants/{step}.json")


def noticed_by(mutant):
    """Who noticed a mutant, over all its runs."""
    findings = [kind for kind in mutant["by"] if kind not in (WRONG, FAILED) and not kind.startswith(ENDED)]
    if not mutant["caught"]:
        return "nobody can: it is equivalent" if mutant["equivalent"] else "nobody"
    if not findings:
        if WRONG in mutant["by"]:
            return "the checker alone"
        return "a test of the step alone" if FAILED in mutant["by"] else "neither: it hung, crashed or was refused"
    if WRONG in mutant["by"]:
        return "the simulator and the checker"
    races = all("race" in kind for kind in findings)
    return "the simulator alone, " + ("by a race" if races else "by an access that is not allowed")


def caught_by(mutant):
    """A cell: what caught a mutant, and in how many runs where not in all."""
    if not mutant["caught"]:
        return "equivalent" if mutant["equivalent"] else "**nothing**"
    part = "" if mutant["caught"] == mutant["runs"] else f" ({mutant['caught']} of {mutant['runs']})"
    return ", ".join(mutant["by"]) + part


def place_of(mutant):
    return f"{mutant['file']}:{mutant['line']}"


def as_code(text):
    return "`" + text.replace("|", "\\|") + "`"


@table("mutants")
def mutants_table(root, step):
    """How many mutants a step has, and who noticed them."""
    counts = {}
    for mutant in mutation_results(root, step)["mutants"]:
        row = counts.setdefault(noticed_by(mutant), dict.fromkeys(DONE, 0))
        row[mutant["what"].split()[0]] += 1
    verbs = [verb for verb in DONE if any(row[verb] for row in counts.values())]
    ordered = sorted(counts.items(), key=lambda item: -sum(item[1].values()))
    rows = [[who, *(row[verb] for verb in verbs)] for who, row in ordered]
    rows.append(["all", *(sum(row[verb] for row in counts.values()) for verb in verbs)])
    return markdown(["noticed by", *(DONE[verb] for verb in verbs)], rows, "l" + "r" * len(verbs))


@table("mutant-shapes")
def mutant_shapes_table(root, step):
    """What each shape is good for: how many mutants it caught, and how many no other shape did."""
    results = mutation_results(root, step)
    rows = []
    for shape, arguments in results["shapes"].items():
        where = [mutant["at"] for mutant in results["mutants"] if shape in mutant["at"]]
        alone = sum(len(at) == 1 for at in where)
        rows.append([shape, as_code(" ".join(arguments)) if arguments else "", len(where), alone])
    return markdown(["shape", "its flags", "mutants caught", "caught there alone"], rows, "llrr")


@table("mutant-calls")
def mutant_calls_table(root, step):
    """Every barrier and wait that was removed or weakened, and every swap, with the lines of the first report."""
    rows = []
    for mutant in mutation_results(root, step)["mutants"]:
        if not mutant["what"].startswith("shift "):
            lines = mutant["first"]["lines"] if mutant["first"] else []
            short = " and ".join(line.rpartition("/")[2] for line in lines)
            runs = f"{mutant['caught']} of {mutant['runs']}"
            by = ", ".join(mutant["by"]) or caught_by(mutant)
            rows.append([place_of(mutant), as_code(mutant["what"]), by, runs, mutant["right_values"], short])
    header = ["where", "what was done", "caught by", "in runs", "of these, all values right", "first report"]
    return markdown(header, rows, "lllrrl")


@table("mutant-shifts")
def mutant_shifts_table(root, step):
    """Every index that was shifted, both ways."""
    rows = {}
    for mutant in mutation_results(root, step)["mutants"]:
        verb, _, rest = mutant["what"].partition(" ")
        if verb == "shift":
            shift, _, mark = rest.partition(" ")
            rows.setdefault((place_of(mutant), as_code(mark)), {})[shift] = caught_by(mutant)
    return markdown(["where", "index", "+1", "−1"], [[*place, cells["+1"], cells["-1"]] for place, cells in rows.items()])


@table("mutants-equivalent")
def mutants_equivalent_table(root, step):
    """The mutants that nothing can notice, with the reasons that the step's mutants.json gives."""
    equivalent = [mutant for mutant in mutation_results(root, step)["mutants"] if mutant["equivalent"]]
    rows = [[place_of(mutant), as_code(mutant["what"]), mutant["equivalent"]] for mutant in equivalent]
    return markdown(["where", "what was done", "why nothing can notice"], rows)
