"""Which of the simulator's counts does the GPU's machine code bear out? (tools/machine_code/disassembly.py sass)

The simulator counts the accesses of the source. The GPU executes those that nvcc left: it may merge two loads into a wider one, drop one
whose value it still has, or move one out of a loop. For each line of a kernel, and each space and direction:

  - the machine code must access the same widths as the source;
  - it must hold at least as many instructions as the source has accesses (unrolling only multiplies them);
  - it must not access memory on a line where the source does not;
  - if none of its instructions lies in a loop, it cannot have made more requests than it has instructions, warp by warp;
  - where the source multiplies what it loads in a loop, there must be as many loads for each multiplication as in the source: fewer,
    if the machine code keeps a value in a register while a loop goes on.

Accesses that bear the name of another line are given back first (by_line).

What this cannot tell: an unrolled loop and its remainder are two places. Lanes of a warp that go round the loop different numbers of times
part there, and make more requests than in the source. Such lines are marked; a step may call them estimates.
"""

import collections
import functools
import re
from dataclasses import dataclass, field

from tools.machine_code.code_listing import (
    ROOT,
    Missing,
    function_name,
    in_source_order,
)
from tools.machine_code.hooks import Follower

# What the names of Nsight Compute's metrics for each space and direction contain. (Of cp.async, stmatrix and red, the simulator estimates
# sectors and wavefronts for reasons of its own: the requests, or instructions, say what nvcc made of it.)
METRICS = {("global", "load"): "_mem_global_op_ld.", ("global", "store"): "_mem_global_op_st.",
           ("shared", "load"): "_mem_shared_op_ld.", ("shared", "store"): "_mem_shared_op_st.",
           ("shared", "ldmatrix"): "_mem_shared_op_ldsm.", ("shared", "stmatrix"): "_inst_executed_op_shared_stsm.",
           ("global", "red"): "_inst_executed_op_global_red.",
           ("global", "cp.async.ca"): "_requests_pipe_lsu_mem_global_op_ldgsts_cache_access.",
           ("global", "cp.async.cg"): "_requests_pipe_lsu_mem_global_op_ldgsts_cache_bypass."}  # fmt: skip
RED = ("global", "red")  # also what nvcc makes of an atomicAdd() without a result, and those the simulator does not count
MULTIPLICATIONS = {"FFMA", "FMUL", "DFMA", "DMUL"}


@dataclass
class Line:
    """What the simulator saw of one line of a kernel, in one space and direction."""

    sites: dict = field(default_factory=dict)  # {bytes: accesses in the compiled source}
    launches: list = field(default_factory=list)  # of (requests, warps)


@dataclass
class Counted:
    """What the simulator counted of a kernel, over all its launches."""

    lines: dict = field(default_factory=dict)  # {(place, space, op): Line}
    exact: set = field(default_factory=set)  # (space, op) of what some launch calls exact
    estimates: dict = field(default_factory=dict)  # {(space, op): the step's reason} of what some launch calls an estimate


@dataclass
class Row:
    """One line of a kernel, in one space and direction: in the source and in the machine code."""

    kernel: str
    place: str
    space: str
    op: str
    source: str
    machine: str
    difference: str  # empty: none
    declared: bool  # the step calls it an estimate
    unrolled: bool  # a loop around it was, so that lanes that go round it differently often part
    elsewhere: bool  # some of the machine code has the name of another line
    polls: bool  # it waits in a loop for what another thread writes: how often it is executed depends on the time


def counted_kernels(reports):
    """The counters of the simulator's JSON reports: {kernel: Counted}"""
    kernels = {}
    for report in reports:
        for launch in (launch for result in report["results"] for launch in result.get("counters") or []):
            kernel = kernels.setdefault(function_name(launch["kernel"]), Counted())
            warps = product(launch["grid"]) * -(-product(launch["block"]) // 32)
            requests = collections.Counter()
            for line in launch["lines"]:
                key = (line["where"], line["space"], line["op"])
                sites = kernel.lines.setdefault(key, Line()).sites
                sites[line["bytes"]] = max(sites.get(line["bytes"], 0), line["sites"])
                requests[key] += line["requests"]
            for key, count in requests.items():
                kernel.lines[key].launches.append((count, warps))
            for key, part in METRICS.items():
                if any(part in metric for metric in launch["exact"]):
                    kernel.exact.add(key)
                elif reasons := [entry["reason"] for metric, entry in launch["estimate"].items() if part in metric]:
                    kernel.estimates[key] = reasons[0]
                elif requests[key] > 0:  # copies that all had 0 bytes ask for nothing, and have no metric
                    raise Missing(f"the counters have no metric with {part} in its name")
    return kernels


def product(extents):
    x, y, z = extents
    return x * y * z


# ---- multiplications of the source, in the sim build's code ----


@dataclass
class Beside:
    """Accesses of one line in a loop, and the multiplications that happen just as often, because they stand in the same block."""

    accesses: int
    multiplications: int
    places: set  # the lines of the multiplications
    all: bool  # no access of the line stands elsewhere


def multiplications_beside(code, kernel):
    """{(place, "load" or "store"): Beside}. Left out are blocks that call functions or divide: nvcc makes multiplications of that,
    too; and lines that also multiply elsewhere."""
    everywhere = collections.Counter()  # multiplications on a line
    blocks = []  # (accesses, multiplications, may they be compared?)
    for function in code.reached_from(kernel).values():
        if function.name.startswith("simt::"):
            continue
        reported = {i.address: "load" if kind == "read" else "store" for i, kind in Follower(function).reported}
        for block, instructions in function.blocks.items():
            accesses, multiplied, clear = collections.Counter(), collections.Counter(), bool(function.loops[block])
            for i in instructions:
                if op := reported.get(i.address) or self_reporting(i, code):
                    accesses[i.place, op] += 1
                elif re.match(r"v?mul[sp][sd]$", i.opcode):
                    multiplied[i.place] += 1
                elif re.match(r"v?(div|sqrt)[sp][sd]$", i.opcode) or calls_other_code(i):
                    clear = False
            everywhere += multiplied
            blocks.append((accesses, multiplied, clear and bool(multiplied)))
    found = {}
    for access in {access for accesses, _, _ in blocks for access in accesses}:
        here = [(accesses[access], multiplied) for accesses, multiplied, usable in blocks if usable and access in accesses]
        counts = sum((multiplied for _, multiplied in here), collections.Counter())
        if here and all(everywhere[place] == count for place, count in counts.items()):
            everything = all(usable for accesses, _, usable in blocks if access in accesses)
            found[access] = Beside(sum(n for n, _ in here), counts.total(), set(counts), everything)
    return found


def calls_other_code(instruction):
    """Does it call anything but the simulator?"""
    return instruction.opcode == "call" and not (instruction.symbol or "").startswith(("__tsan_", "_ZN4simt"))


def self_reporting(instruction, code):
    """ "load" or "store", if the instruction calls simt::load or store."""
    callee = code.functions.get(instruction.symbol) if instruction.opcode == "call" else None
    return next((op for op in ("load", "store") if callee is not None and callee.name.startswith(f"simt::{op}<")), None)


# ---- the comparison ----


def compare(name, kernel, counted, beside):
    """The rows of a kernel (sass_code.Kernel), in the order of the source."""
    machine = by_line(kernel, counted)
    if not any((space, op) == RED for _, space, op in counted.lines):
        machine = {key: accesses for key, accesses in machine.items() if key[1:] != RED}
    rows = []
    for key in sorted({*machine, *counted.lines}, key=lambda key: (in_source_order(key[0]), key[1:])):
        place, space, op = key
        line, accesses = counted.lines.get(key), machine.get(key, [])
        source = " + ".join(f"{n} × {size} B" for size, n in sorted(line.sites.items())) if line else "-"
        difference = difference_of(line, accesses)
        if not difference and (near := beside.get((place, op))):
            if near.all:
                difference = balance(kernel, accesses, sum(line.sites.values()), near)
            else:
                anywhere = [access for either in ("global", "shared") for access in machine.get((place, either, op), [])]
                difference = balance(kernel, anywhere, near.accesses, near)
        in_loops = [access for access in accesses if access.loop is not None]
        unrolled = line is not None and len(accesses) > sum(line.sites.values()) and bool(in_loops)
        polls = op == "load" and any("STRONG" in access.opcode for access in in_loops)
        declared = (space, op) in counted.estimates and (space, op) not in counted.exact
        elsewhere = any(access.place != place for access in accesses)
        rows.append(Row(name, place, space, op, source, instructions(accesses), difference, declared, unrolled, elsewhere, polls))
    return rows


def by_line(kernel, counted):
    """{(place, space, op): accesses of the machine code}. Where nvcc copies code or merges branches, it may name one line for several, or
    the line of a call for the function's. So an access whose line has none of its width in the source goes to one that has: the one
    with the fewest so far. But its own line must access memory in the same way with another width, or call a function that does, or
    be the head of a loop. An ldmatrix may bear any name: nvcc moves it far ahead of the mma that needs it."""
    machine, strays = collections.defaultdict(list), []
    accesses = [access for access in kernel.accesses if access.space != "local"]
    calls = {(caller, access.space, access.op) for access in accesses for caller in access.callers}
    for access in accesses:
        key = (access.place, access.space, access.op)
        line = counted.lines.get(key)
        if not line and is_line_of_ptx(key):
            caller = (*access.callers[:1], *key[1:])
            if caller in counted.lines:
                machine[caller].append(access)
            else:  # the callers may be another instruction's, too
                strays.append((key, access))
        elif not line and (meant := namesake(key, access.bytes, counted)):
            machine[meant].append(access)
        elif (line and access.bytes not in line.sites) or (not line and (key in calls or heads_a_loop(access.place) or access.op == "ldmatrix")):
            strays.append((key, access))
        else:
            machine[key].append(access)
    for key, access in strays:
        homes = [other for other, line in counted.lines.items() if other[1:] == key[1:] and access.bytes in line.sites]
        home = min(homes, default=key, key=lambda other: sum(here.bytes == access.bytes for here in machine[other]))
        machine[home].append(access)
    for key, line in counted.lines.items():
        if not any(access.loop is not None for access in machine[key]):
            share_with_neighbour(key, machine, counted)
        lacks_some = len(machine[key]) < sum(line.sites.values())
        if lacks_some and (key[2] == "ldmatrix" or (key[2] == "cp.async.cg" and machine[key])):
            share_with_helper(key, machine, counted)
    return machine


def heads_a_loop(place):
    """Is there a `for` or `while` on this line of the source?"""
    file, _, number = place.rpartition(":")
    path = ROOT / file
    lines = path.read_text().splitlines() if number.isdigit() and path.is_file() else []
    return int(number or 0) <= len(lines) and bool(lines) and lines[int(number) - 1].lstrip().startswith(("for (", "while ("))


@functools.cache
def ptx_lines():
    """[the lines of a header of common/device/ptx/, …]"""
    return [path.read_text().splitlines() for path in sorted((ROOT / "common/device/ptx").glob("*.cuh"))]


def is_line_of_ptx(key):
    """nvcc may give an instruction of a header of common/device/ptx/ the right number, and the name of the file that called it. Then
    the caller's line counts."""
    number = int(key[0].rpartition(":")[2] or 0)
    return any(number <= len(lines) and "asm" in lines[number - 1] and key[2] in lines[number - 1] for lines in ptx_lines())


def namesake(key, width, counted):
    """nvcc may name a line of another file, with the right number. The line of the source that it means, if that is the only one of
    this number with such an access."""
    number = key[0].rpartition(":")[2]
    lines = [k for k, line in counted.lines.items() if k[0].endswith(f":{number}") and k[1:] == key[1:] and width in line.sites]
    return lines[0] if len(lines) == 1 else None


def share_with_neighbour(key, machine, counted):
    """Of two neighbouring lines with the same accesses nvcc may name one for both, or for nearly all that stand in loops: then the other
    gets its share back."""
    file, _, number = key[0].rpartition(":")
    if not number.isdigit():
        return
    mine = counted.lines[key].sites
    for other in ((f"{file}:{int(number) + step}", *key[1:]) for step in (-1, 1)):
        both = machine.get(other, []) + machine.get(key, [])
        in_loops = any(access.loop is not None for access in machine.get(other, []))
        if other in counted.lines and counted.lines[other].sites == mine and len(both) >= 2 * sum(mine.values()) and (in_loops or not machine.get(key)):
            machine[key], machine[other] = both[1::2], both[::2]
            return


def share_with_helper(key, machine, counted):
    """Functions that load fragments, or start copies, are called beside each other, and nvcc may name one of their lines for several. The
    line of the same file that has the most accesses beyond those of the source gives as many as are missing; of copies, those before loops."""
    file = key[0].rpartition(":")[0]
    missing = sum(counted.lines[key].sites.values()) - len(machine[key])

    def may_give(other):
        return [access for access in machine[other] if key[2] == "ldmatrix" or access.loop is None]

    def surplus(other):
        return min(len(may_give(other)), len(machine[other]) - sum(counted.lines[other].sites.values()))

    others = [k for k in counted.lines if k != key and k[1:] == key[1:] and k[0].rpartition(":")[0] == file and surplus(k) >= missing]
    if others:
        giver = max(others, key=surplus)
        for access in may_give(giver)[-missing:]:
            machine[giver].remove(access)
            machine[key].append(access)


def instructions(accesses):
    """ "58 LDG.E, 42 in loops"."""
    if not accesses:
        return "-"
    counts = collections.Counter(access.opcode for access in accesses)
    in_loops = sum(access.loop is not None for access in accesses)
    return " + ".join(f"{n} {opcode}" for opcode, n in sorted(counts.items())) + (f", {in_loops} in loops" if in_loops else "")


def difference_of(line, accesses):
    """Why the counts of a line only estimate what the GPU does; empty if nothing says so."""
    if accesses and accesses[0].space == "generic":
        return "the compiler cannot tell the space of this address"
    if line is None:
        return "the source has no such access here, or the simulator did not come by"
    if not accesses:
        return "the machine code has no such access: merged with another, or dropped"
    widths = {access.bytes for access in accesses}
    if widths != set(line.sites):
        return f"{in_bytes(line.sites)} in the source, {in_bytes(widths)} in the machine code"
    for size, sites in line.sites.items():
        here = sum(access.bytes == size for access in accesses)
        if here < sites:
            return f"{sites} accesses in the source, {here} in the machine code: merged or dropped"
    if all(access.loop is None for access in accesses):
        for requests, warps in line.launches:
            if requests > len(accesses) * warps:
                return f"{requests} requests by {warps} warps, but no loop in the machine code: moved out of it, or merged"
    return ""


def in_bytes(sizes):
    return " and ".join(map(str, sorted(sizes))) + " bytes"


def balance(kernel, accesses, sites, beside):
    """Are there at least as many accesses for each multiplication as in the source? Where all accesses of the line stand beside one,
    this must hold in each of the machine code's loops; else in the kernel."""
    multiplied = collections.Counter()
    for instruction, loop in zip(kernel.instructions, kernel.loops):
        if instruction.place in beside.places and instruction.base in MULTIPLICATIONS:
            multiplied[loop if beside.all else None] += 1
    accessed = collections.Counter(access.loop if beside.all else None for access in accesses)
    for loop, count in multiplied.items():
        if accessed[loop] * beside.multiplications < count * sites:
            return (f"{sites} for {beside.multiplications} multiplications in the source, {accessed[loop]} for {count} in the machine code: "
                    "values stay in registers")  # fmt: skip
    return ""


def problems_of(name, rows, counted):
    """What is wrong between the differences of a kernel and what the step declares: [text]"""
    problems, different = [], {}
    for row in rows:
        for space in ("global", "shared") if row.space == "generic" else (row.space,):
            if row.difference:
                different.setdefault((space, row.op), row)
    for (space, op), row in different.items():
        if (space, op) in counted.exact:
            problems.append(f"{name}: {space} {op}s are called exact, but {row.place} is not: {row.difference}")
    for (space, op), reason in counted.estimates.items():
        differently_often = any((row.unrolled or row.polls) and (row.space, row.op) == (space, op) for row in rows)
        if (space, op) not in different and not differently_often:
            problems.append(f"{name}: {space} {op}s are declared as estimates, but the machine code bears them out. Declared was: {reason}")
    return problems
