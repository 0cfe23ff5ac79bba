"""Does the machine code keep the step's plan? (tools/machine_code/disassembly.py sass)

tests/steps/NN_name/plan.json says what nvcc may make of each kernel, by the arithmetic of the source:

    {"types": ["__half", "__nv_bfloat16"],               what is planned of kernel<T> holds for these T
     "round": "64 steps of k",                           what the table of loops counts
     "kernels": {"kernel<T>": {
         "registers": 128,                               at most
         "stack": 80,                                    bytes, at most; 0 if not given
         "arch": "sm_90",                               there is such a kernel in the code for this one only; in all if not given
         "loops": [{"HMMA": 64, "LDSM": 24, "LDG": 8,    of one round of each loop with HMMA, those with the most first
                    "rounds": 1,                         how many of them make a round of the table; 1 if not given
                    "why": "…"}],
         "any_loops": true,                              in their place: the loops are not compared
         "why": "…"}}}

A loop does not count what an inner loop with HMMA does: that has its own entry. HMMA, LDSM and LDGSTS are compared always, other
instructions where the plan names them. What lies in local memory (the stack) are registers that are spilled, and arrays that need an
address: a plan that allows it says why.

Not every kernel needs an entry. One without is held to one rule: nothing in local memory.
"""

import json
import re

from tools.machine_code.code_listing import ROOT
from tools.machine_code.sass_code import ACCESSES

COMPARED = ["HMMA", "LDSM", "LDGSTS"]
LOOPS = ["kernel", "HMMA", "LDSM", "other accesses", "all others", "beside each HMMA"]


def read_plan(step):
    """The plan of a step, or an empty one."""
    file = ROOT / "tests" / "steps" / step / "plan.json"
    return json.loads(file.read_text()) if file.is_file() else {}


def short(name):
    """ "ns::kernel<ns::Tile<64>, device::AttentionShape>" as "kernel<Tile<64>>": without packed sequences that is every kernel's shape."""
    return re.sub(r"(\w+|\(anonymous namespace\))::", "", name).replace("> >", ">>").replace(", AttentionShape>", ">")


def planned_kernels(plan):
    """{name: what is planned}, with a type for each T."""
    return {name.replace("<T", f"<{T}"): entry for name, entry in plan.get("kernels", {}).items() for T in plan["types"]}


def problems_of(plan, kernels, arch=None):
    """What differs between the plan and the kernels of one architecture: [text]"""
    planned = {name: entry for name, entry in planned_kernels(plan).items() if entry.get("arch", arch) == arch}
    there = {short(kernel.name): kernel for kernel in kernels}
    problems = [f"{name}: has no entry in the step's plan.json, and {text}" for name in there if name not in planned for text in spills(there[name], 0)]
    problems += [f"{name}: planned, but there is no such kernel" for name in planned if name not in there]
    return problems + [f"{name}: {text}" for name in there if name in planned for text in differences(planned[name], there[name])]


def is_planned(plan, kernel):
    """Has the kernel an entry?"""
    return short(kernel.name) in planned_kernels(plan)


def spills(kernel, stack):
    """What is wrong if that many bytes of stack are allowed."""
    if kernel.stack > stack or stack == 0 and (kernel.counts["LDL"] or kernel.counts["STL"]):
        yield f"spills, or an array in local memory: {kernel.stack} bytes of stack, {kernel.counts['LDL']} LDL, {kernel.counts['STL']} STL"


def differences(entry, kernel):
    if kernel.registers > entry["registers"]:
        yield f"at most {entry['registers']} registers are planned, {kernel.registers} are there"
    yield from spills(kernel, entry.get("stack", 0))
    if entry.get("any_loops"):
        return
    loops = entry.get("loops", [])
    if len(loops) != len(kernel.tensor_loops):
        yield f"loops with HMMA: {len(loops)} planned, {len(kernel.tensor_loops)} there"
    for number, (loop, counts) in enumerate(zip(loops, kernel.tensor_loops), 1):
        for opcode in [*COMPARED, *(key for key in loop if key.isupper() and key not in COMPARED)]:
            if counts[opcode] != loop.get(opcode, 0):
                yield f"loop {number}, one round: {loop.get(opcode, 0)} {opcode} planned, {counts[opcode]} there"


def loop_rows(plan, kernels):
    """A row of LOOPS for each loop with HMMA: what a warp executes in a round of the table."""
    planned = planned_kernels(plan)
    for kernel in kernels:
        loops = planned.get(short(kernel.name), {}).get("loops", [])
        for number, counts in enumerate(kernel.tensor_loops):
            rounds = loops[number].get("rounds", 1) if number < len(loops) else 1
            accesses = sum(counts[opcode] for opcode in ACCESSES if opcode != "LDSM")
            others = counts.total() - counts["HMMA"] - counts["LDSM"] - accesses
            beside = (counts.total() - counts["HMMA"]) / counts["HMMA"]
            yield [short(kernel.name), *(n * rounds for n in (counts["HMMA"], counts["LDSM"], accesses, others)), f"{beside:.2f}"]
