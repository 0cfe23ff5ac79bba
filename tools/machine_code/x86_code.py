"""Reads what objdump prints of an object of the sim build: functions, instructions with their lines, blocks, kernels."""

import functools
import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from tools.machine_code.code_listing import (
    ROOT,
    Missing,
    base_name,
    demangled,
    from_root,
    function_name,
    loops_of,
    output_of,
    place_of,
)

WIDTHS = {"BYTE": 1, "WORD": 2, "DWORD": 4, "QWORD": 8, "XMMWORD": 16, "YMMWORD": 32, "OWORD": 16, "TBYTE": 10}

# The general registers: {any of its names: (its 64-bit name, how many bits that name means)}
REGISTERS = {f"r{n}{end}": (f"r{n}", bits) for n in range(8, 16) for end, bits in (("", 64), ("d", 32), ("w", 16), ("b", 8))}
for letter in "abcd":
    REGISTERS |= {name: (f"r{letter}x", bits) for name, bits in
                  ((f"r{letter}x", 64), (f"e{letter}x", 32), (f"{letter}x", 16), (f"{letter}l", 8), (f"{letter}h", 8))}  # fmt: skip
for name in ("si", "di", "bp", "sp"):
    REGISTERS |= {f"r{name}": (f"r{name}", 64), f"e{name}": (f"r{name}", 32), name: (f"r{name}", 16), f"{name}l": (f"r{name}", 8)}

MEMORY = re.compile(r"(?:(?P<width>[A-Z]+) PTR )?(?:(?P<segment>[c-gs]s):)?(?:\[(?P<inside>[^]]*)\]|(?P<absolute>0x[0-9a-f]+))$")


@dataclass(frozen=True)
class Memory:
    """An operand in memory: [base + scale * index + offset]."""

    width: int  # 0: the instruction does not access it (lea)
    segment: str
    base: str | None
    index: str | None
    scale: int
    offset: int


@functools.cache
def memory_operand(text):
    """A Memory, or None if the operand is a register or a number."""
    match = MEMORY.match(text)
    if match is None or (match["inside"] is None and not match["segment"]):
        return None
    base, index, scale, offset = None, None, 1, int(match["absolute"] or "0", 16)
    for sign, part in re.findall(r"([+-]?)([^+-]+)", match["inside"] or ""):
        register, _, factor = part.partition("*")
        if part.startswith("0x"):
            offset += -int(part, 16) if sign == "-" else int(part, 16)
        elif factor:
            index, scale = register, int(factor)
        elif base is None:
            base = register
        else:
            index = register
    return Memory(WIDTHS.get(match["width"] or "", 0), match["segment"] or "", base, index, scale, offset)


@dataclass
class Instruction:
    address: int
    opcode: str
    operands: tuple  # of texts
    frames: tuple  # of (file, line), innermost first
    text: str
    symbol: str | None  # what the linker fills in, or what a jump or call names
    relocated: bool = True
    target: int | None = None  # of a jump within the function

    @property
    def place(self):
        return place_of(self.frames)


@dataclass
class Function:
    symbol: str
    name: str  # in C++, without its parameters
    section: str
    instructions: list = field(default_factory=list)

    @functools.cached_property
    def blocks(self):
        """Basic blocks: {address: [instructions]}"""
        starts = {self.instructions[0].address}
        for before, after in zip(self.instructions, self.instructions[1:]):
            if is_jump(before):
                starts.add(after.address)
        starts.update(i.target for i in self.instructions if i.target is not None)
        blocks, current = {}, None
        for instruction in self.instructions:
            if instruction.address in starts:
                current = blocks.setdefault(instruction.address, [])
            current.append(instruction)
        return blocks

    @functools.cached_property
    def successors(self):
        """{address of a block: [addresses of the blocks that may follow]}"""
        order = list(self.blocks)
        following = {}
        for block, after in zip(order, order[1:] + [None]):
            last = self.blocks[block][-1]
            next_blocks = [] if last.target is None else [last.target]
            if after is not None and last.opcode not in ("jmp", "ret", "ud2", "hlt"):
                next_blocks.append(after)
            following[block] = next_blocks
        return following

    @functools.cached_property
    def loops(self):
        """{address of a block: the headers of the loops around it, outermost first}"""
        return loops_of(self.successors)


def is_jump(instruction):
    return instruction.opcode.startswith("j") or instruction.opcode in ("ret", "ud2", "hlt")


# ---- objdump's text ----

SECTION = re.compile(r"Disassembly of section (.*):$")
FUNCTION = re.compile(r"([0-9a-f]+) <(.*)>:$")
INSTRUCTION = re.compile(r" *([0-9a-f]+):\t([^\t]+)(?:\t(.*))?$")
LINE = re.compile(r"(inlined by )?(/.*):(\d+)(?: \(.*\))?$")
PREFIXES = ("notrack ", "bnd ", "lock ", "rep ", "repz ", "repnz ", "data16 ", "cs ", "ds ")


class Code:
    """The functions of one object, and which of them are kernels."""

    def __init__(self, path):
        self.path = path
        self.functions = {}  # by symbol
        self.files = set()  # of the sources
        listing = output_of("objdump", "-d", "-r", "-l", "--inlines", "-M", "intel", "-w", "--no-show-raw-insn", path)
        if "elf64-x86-64" not in listing.partition("Disassembly")[0]:
            raise Missing(f"{path} holds no x86-64 code, and this check reads no other")
        self._parse(listing)
        for symbol, declaration in demangled(self.functions).items():
            self.functions[symbol].name = function_name(declaration.split(" [clone")[0])

    def _parse(self, text):
        section, frames, function = "", [], None
        fresh = True  # the next line of the source starts a new list of frames
        starts = {}
        for line in text.splitlines():
            if match := INSTRUCTION.match(line):
                fresh = True
                if function is not None:
                    function.instructions.append(self._instruction(match, tuple(frames)))
            elif match := FUNCTION.match(line):
                function = Function(match[2], match[2], section)
                self.functions[match[2]] = starts[section, int(match[1], 16)] = function
                frames, fresh = [], True
            elif match := LINE.match(line):
                frame = (from_root(match[2]), int(match[3]))
                self.files.add(frame[0])
                if match[1] is None:
                    frames = [frame]
                else:
                    frames = [*frames[:1], frame] if fresh else [*frames, frame]
                fresh = False
            elif match := SECTION.match(line):
                section, function = match[1], None
        for function in self.functions.values():
            self._resolve_jumps(function, starts)

    @staticmethod
    def _instruction(match, frames):
        text = match[2].split("#")[0].strip()
        words = text
        while words.startswith(PREFIXES):
            words = words.partition(" ")[2].strip()
        opcode, _, rest = words.partition(" ")
        operands = tuple(part.strip() for part in re.split(r",(?![^\[]*\])", rest.strip())) if rest.strip() else ()
        if match[3]:  # a relocation: "975: R_X86_64_PLT32\t__tsan_read4-0x4"
            return Instruction(int(match[1], 16), opcode, operands, frames, text, match[3].split("\t")[-1])
        symbol = operands[-1].partition("<")[2].rstrip(">") if operands and "<" in operands[-1] else None
        if symbol is not None:  # a jump or call within the section: "b0b <kernel+0x1b3>"
            text = f"{opcode} {symbol}"
        return Instruction(int(match[1], 16), opcode, operands, frames, text, symbol, False)

    def _resolve_jumps(self, function, starts):
        """Turns what jumps and calls name into a target within the function, or into the symbol of another function."""
        for i in function.instructions:
            if i.symbol is None or not (i.opcode.startswith("j") or i.opcode == "call"):
                continue
            name, sign, digits = re.fullmatch(r"(.*?)(?:([+-])0x([0-9a-f]+))?", i.symbol).groups()
            offset = int(f"{sign or ''}{digits or 0}", 16) + (4 if i.relocated else 0)  # the linker counts from the end
            if name.startswith("."):  # a section
                other = starts.get((name, offset))
                i.symbol = other.symbol if other else i.symbol
            elif name == function.symbol and i.opcode != "call":
                i.symbol, i.target = None, function.instructions[0].address + offset
            else:
                i.symbol = name
            if i.symbol is not None:
                i.text = f"{i.opcode} {i.symbol}"

    # ---- kernels ----

    def kernels(self):
        """The functions that the sources declare __global__. {symbol: Function}"""
        # Debug information need not name every file, so the files beside those that it names are read, too.
        sources = {ROOT / file for file in self.files if file.endswith((".cu", ".cuh"))}
        beside = {path for source in sources for path in source.parent.glob("*.cu*") if path.suffix in (".cu", ".cuh")}
        names = declared_kernels(frozenset(sources | beside))
        found = {symbol: function for symbol, function in self.functions.items() if base_name(function.name) in names and not is_local(symbol)}
        for name in sorted(set(names) - {base_name(function.name) for function in found.values()}):
            where, template = names[name]
            if not template and where.rpartition(":")[0] in self.files:  # a template may have no instance here
                raise Missing(f"{where} declares a kernel {name}, of which {self.path} holds no code")
        return found

    def reached_from(self, kernel):
        """The functions of the object that a kernel calls, directly or not, and the kernel itself."""
        found, todo = {}, [kernel.symbol]
        while todo:
            symbol = todo.pop()
            function = self.functions.get(symbol)
            if function is None or symbol in found:
                continue
            found[symbol] = function
            todo += [i.symbol for i in function.instructions if i.symbol]
        return found


def is_local(symbol):
    """A lambda, or another thing inside a function."""
    return symbol.startswith("_ZZ")


KERNEL = re.compile(r"\b__global__\b\s+(?:void\s+)?(?:__launch_bounds__\s*\([^;{]*?\)\s*)?(?:void\s+)?(\w+)\s*(?:<[^;{]*?>\s*)?\(", re.DOTALL)


@functools.cache
def declared_kernels(paths):
    """What follows __global__ in the sources: {name: (file:line, is it a template?)}"""
    names = {}
    for path in sorted(path for path in paths if path.is_file()):
        code = re.sub(r"//[^\n]*", "", path.read_text())
        for word in re.finditer(r"\b__global__\b", code):
            where = f"{from_root(str(path))}:{code.count(chr(10), 0, word.start()) + 1}"
            match = KERNEL.match(code, word.start())
            if match is None:
                raise Missing(f"{where}: cannot tell the name of this kernel")
            names[match[1]] = (where, re.search(r"template\s*<[^;{}]*>\s*$", code[: word.start()]) is not None)
    return names


def kernel_objects(build):
    """The objects of the sim build that are compiled with the hooks: [(source, object)]. Not all need be built."""
    commands = build / "compile_commands.json"
    if not commands.is_file():
        raise Missing(f"{commands} is missing: run make sim first")
    found = []
    for entry in json.loads(commands.read_text()):
        words = shlex.split(entry["command"])
        if any(word.startswith("-fsanitize=thread") for word in words):
            found.append((entry["file"], Path(entry["directory"]) / words[words.index("-o") + 1]))
    if not found:
        raise Missing(f"{build} compiles no kernel for the simulator: is it a sim build?")
    return found
