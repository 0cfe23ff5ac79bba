"""Reads the GPU's machine code (SASS): what cuobjdump and nvdisasm print of an executable of the gpu build."""

import collections
import functools
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tools.machine_code.code_listing import (
    Missing,
    demangled,
    find_tool,
    from_root,
    function_name,
    loops_of,
    output_of,
    places_of,
)

# What an instruction accesses: (space, what it does, as the simulator's counters name it). A generic address may lie in any space;
# local memory holds spilled registers and arrays that need an address.
ACCESSES = {
    "LDG": [("global", "load")], "STG": [("global", "store")],
    "LDS": [("shared", "load")], "STS": [("shared", "store")],
    "LDSM": [("shared", "ldmatrix")], "STSM": [("shared", "stmatrix")],
    "LDGSTS": [("global", "cp.async.ca")], "LDGSTS past L1": [("global", "cp.async.cg")],
    "LD": [("generic", "load")], "ST": [("generic", "store")],
    "LDL": [("local", "load")], "STL": [("local", "store")],
    "REDG": [("global", "red")], "RED": [("global", "red")],  # the same, from sm_90 on and before
}  # fmt: skip
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "F64": 8, "F32x2": 8, "F32x4": 16}


@dataclass(frozen=True)
class Access:
    opcode: str  # "LDG.E.128"
    space: str
    op: str
    bytes: int  # that each lane moves
    place: str
    callers: tuple  # the lines through which the kernel came to its place
    loop: str | None  # the innermost loop around it


@dataclass
class Instruction:
    opcode: str
    conditional: bool
    place: str
    labels: list  # that it names: of jumps, mostly
    callers: tuple = ()

    @property
    def base(self):
        """The opcode without its modifiers."""
        return self.opcode.split(".")[0]


@dataclass
class Kernel:
    """One kernel, compiled for one architecture."""

    name: str  # in C++, without its parameters
    instructions: list = field(default_factory=list)
    labels: dict = field(default_factory=dict)  # {label: number of the instruction behind it}
    registers: int = 0
    stack: int = 0  # bytes of local memory for each thread

    @functools.cached_property
    def counts(self):
        """{opcode without its modifiers: how many}"""
        return collections.Counter(i.base for i in self.instructions)

    @functools.cached_property
    def blocks(self):
        """{number of a block's first instruction: (that of the next block, the blocks that may follow)}"""
        count = len(self.instructions)
        starts = {0, *self.labels.values()}
        starts.update(n + 1 for n, i in enumerate(self.instructions) if i.labels or i.base in ENDS)
        blocks = sorted(start for start in starts if start < count)
        found = {}
        for start, end in zip(blocks, blocks[1:] + [count]):
            last = self.instructions[end - 1]
            following = [self.labels[label] for label in last.labels if self.labels.get(label, count) < count]
            if end < count and (last.conditional or last.base not in ENDS):
                following.append(end)
            found[start] = (end, following)
        return found

    @functools.cached_property
    def nests(self):
        """{block: the first blocks of the loops around it, outermost first}"""
        return loops_of({start: following for start, (_, following) in self.blocks.items()})

    @functools.cached_property
    def loops(self):
        """For each instruction, the innermost loop around it, or None."""
        return [nest[-1] if nest else None for start, nest in self.nests.items() for _ in range(start, self.blocks[start][0])]

    @functools.cached_property
    def tensor_loops(self):
        """One round of each loop that has HMMA of its own, those with the most first: {opcode without its modifiers: how many}. All blocks
        of the loop count once, those of inner loops, too, but for inner loops with HMMA: they have their own entry. Left out are blocks that
        access memory on a line of an inner loop without being in it: where nvcc unrolls an inner loop, they are for what remains if the
        number of its rounds is no multiple."""
        tensor = dict.fromkeys(loop for loop, i in zip(self.loops, self.instructions) if i.opcode.startswith("HMMA") and loop is not None)
        rounds = []
        for loop in tensor:
            inside = [block for block, nest in self.nests.items() if loop in nest and not set(nest[nest.index(loop) + 1 :]) & set(tensor)]
            body = {block: self.instructions[block : self.blocks[block][0]] for block in inside}
            lines = {block: {i.place for i in instructions if i.base in ACCESSES} for block, instructions in body.items()}
            inner = {block for block in body if self.nests[block][-1] != loop}
            of_inner = set().union(*(lines[block] for block in inner))
            rounds.append(collections.Counter(i.base for block in body if block in inner or not lines[block] & of_inner for i in body[block]))
        return sorted(rounds, key=lambda counts: -counts["HMMA"])

    @functools.cached_property
    def accesses(self):
        found = []
        for instruction, loop in zip(self.instructions, self.loops):
            base, *modifiers = instruction.opcode.split(".")
            for space, op in ACCESSES.get(f"{base} past L1" if "BYPASS" in modifiers else base, ()):
                found.append(Access(instruction.opcode, space, op, access_bytes(base, modifiers), instruction.place, instruction.callers, loop))
        return found


# After these, unless they are conditional, the next instruction does not follow. BSYNC waits where the ways of a branch meet, and
# goes on behind itself.
ENDS = {"BRA", "EXIT", "RET", "BRX", "JMP", "JMX", "KILL", "BPT"}


def access_bytes(base, modifiers):
    if base in ("LDSM", "STSM"):  # 8 × 8 matrices of 16 bits: each is 4 bytes for each lane
        return 4 * int(modifiers[-1] if modifiers[-1].isdigit() else 1)
    return next((WIDTHS[m] for m in modifiers if m in WIDTHS), 4)


# ---- nvdisasm's text ----

SECTION = re.compile(r"\s*\.section\s+\.text\.([^,\s]+)")
ENTRY = re.compile(r'\s*\.other\s+(\S+),@"STO_CUDA_ENTRY')
LABEL = re.compile(r"([.$\w]+):$")
LINE = re.compile(r'\s*//## File "([^"]*)", line (\d+)')
HELPER = re.compile(r'//## File "([^"]*/common/device/(?:ptx/)?[^"/]*)", line (\d+) inlined at "\1", line (\d+)')  # in another of its file
INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]+\*/\s+(?:\{\s*)?(@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")
USAGE = re.compile(r" Function (\S+):\n\s*REG:(\d+) STACK:(\d+)")


def read_listing(text):
    """The kernels in what nvdisasm -c -gi printed: {symbol: Kernel}"""
    sections, entries, frames, fresh, current = {}, set(), [], True, None
    places = []  # those of `frames`: many instructions have the same
    helpers = {(int(inner), int(outer)) for _, inner, outer in HELPER.findall(text)}
    for line in text.splitlines():
        if match := LINE.match(line):  # most lines are of this kind
            frames = [] if fresh else frames
            frames.append((from_root(match[1]), int(match[2])))
            fresh, places = False, []
        elif match := INSTRUCTION.match(line):
            fresh = True
            if current is not None:
                labels = [] if match[2].startswith("RET") else re.findall(r"`\(([^)]+)\)", match[3])
                place, *callers = places = places or places_of(without_misnamed(frames, helpers))
                opcode = "NOP" if (match[1] or "").strip() == "@!PT" else match[2]  # never: ptxas puts such loads before LDGSTS
                current.instructions.append(Instruction(opcode, match[1] is not None, place, labels, tuple(callers)))
        elif match := SECTION.match(line):
            current = sections.setdefault(match[1], Kernel(match[1]))
            frames, places = [], []
        elif line.startswith("\t.section\t"):
            current = None
        elif match := ENTRY.match(line):
            entries.add(match[1])
        elif current is not None and (match := LABEL.match(line)):
            current.labels[match[1]] = len(current.instructions)
    for symbol, declaration in demangled(sections).items():
        sections[symbol].name = function_name(declaration)
    return {symbol: with_callees(sections[symbol], sections) for symbol in sections if symbol in entries}


def without_misnamed(frames, helpers):
    """nvcc may give the lines of load_if, which calls load, the name of the file that calls load_if: then these two frames say nothing."""
    same_file = len(frames) > 2 and frames[0][0] == frames[1][0]
    return frames[2:] if same_file and (frames[0][1], frames[1][1]) in helpers else frames


def with_callees(kernel, sections):
    """A kernel, with the code of the functions that were not inlined into it."""
    todo, seen = [kernel], {id(kernel)}
    whole = Kernel(kernel.name)
    while todo:
        part = todo.pop()
        whole.labels |= {label: len(whole.instructions) + at for label, at in part.labels.items()}
        whole.instructions += part.instructions
        for i in part.instructions:
            for label in i.labels:
                other = sections.get(label)
                if other is not None and id(other) not in seen:
                    seen.add(id(other))
                    todo.append(other)
    return whole


def kernels_of(executable, arch):
    """The kernels of an executable, compiled for an architecture ("sm_90"): {name: Kernel}"""
    if not executable.is_file():
        raise Missing(f"{executable} is missing: run make gpu first")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        output_of("cuobjdump", "--extract-elf", f".{arch}.", executable.resolve(), cwd=folder)
        cubins = sorted(Path(folder).glob("*.cubin"))
        if not cubins:
            raise Missing(f"{executable} holds no code for {arch}")
        for cubin in cubins:
            kernels = read_listing(output_of("nvdisasm", "--print-code", "--print-line-info-inline", cubin))
            for symbol, registers, stack in USAGE.findall(output_of("cuobjdump", "--dump-resource-usage", cubin)):
                if symbol in kernels:
                    kernels[symbol].registers, kernels[symbol].stack = int(registers), int(stack)
            found |= {kernel.name: kernel for kernel in kernels.values()}
    return found


def architectures(executable):
    """Those that an executable holds machine code for."""
    if not executable.is_file():
        raise Missing(f"{executable} is missing: run make gpu first")
    find_tool("nvdisasm")
    return sorted(set(re.findall(r"\.(sm_\w+)\.cubin", output_of("cuobjdump", "--list-elf", executable))))
