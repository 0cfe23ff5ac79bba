"""Does every memory access of a kernel pass the simulator's hooks? (tools/machine_code/disassembly.py hooks)

The kernel's machine code is followed with symbols in place of values: each register and each slot of the stack holds a sum
of symbols and a number. A call of __tsan_read4(p) leaves the fact "4 bytes at p were reported as read"; it lasts until another function
is called or two paths meet. An access to memory is in order if

  - it goes to the stack, to constants of the program or to thread-local variables (threadIdx), or
  - such a fact covers it.

What a function does to memory that its caller passed by address, without a hook (large results are returned so), is judged where
it is called: there the address must be one of the stack.
"""

import collections
import re
from dataclasses import dataclass

from tools.machine_code.code_listing import in_source_order
from tools.machine_code.x86_code import REGISTERS, Memory, is_local, memory_operand

ELSEWHERE = ("stack", "image", "thread")  # kinds of memory that no hook need report
ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
LOST_IN_CALLS = ("rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11")

HOOK = re.compile(r"__tsan_(?:unaligned_)?(?:volatile_)?(read|write)(\d+|_range)$")
SILENT_HOOK = re.compile(r"__tsan_(init|func_entry|func_exit|vptr_\w+|atomic_\w+_fence)$")
ATOMIC_HOOK = re.compile(r"__tsan_(?:unaligned_)?atomic\d+_")
REPORT = re.compile(r"_ZN4simt(?:13report_accessE|13report_atomicE|19report_atomic_storeE)")

# Which arguments of a library function are addresses that it reads or writes.
POINTERS = {"memcpy": "rdi rsi", "memmove": "rdi rsi", "memset": "rdi", "memcmp": "rdi rsi", "bcmp": "rdi rsi", "strlen": "rdi",
            "__memcpy_chk": "rdi rsi", "__memmove_chk": "rdi rsi", "__memset_chk": "rdi",
            "sincos": "rdi rsi", "frexp": "rdi", "modf": "rdi", "remquo": "rdi"}  # fmt: skip
ARITHMETIC = re.compile(  # of libm, and of libgcc
    "(a?(cos|sin|tan)h?|atan2|cbrt|ceil|copysign|erfc?|exp[2m1]*|fabs|fdim|floor|fma|fmax|fmin|fmod|hypot|ilogb|ldexp|[lt]gamma|"
    "ll?rint|ll?round|log[12bp0]*|nearbyint|nextafter|pow|remainder|rint|round|scalbl?n|sqrt|trunc)f?|"
    r"__(popcount|parity|clz|ctz|ffs|bswap|mul|div|udiv|mod|umod)[sdt]i\d"
)
HARMLESS = {"__ubsan_handle_divrem_overflow",  # reports, and returns only in host code
            "printf", "__printf_chk", "puts", "putchar", "abort", "__stack_chk_fail", "__assert_fail", "_Unwind_Resume",
            "__cxa_begin_catch", "__cxa_end_catch", "__cxa_rethrow", "__cxa_call_unexpected", "_ZSt9terminatev"}  # fmt: skip

READ_ONLY = {"cmp", "test", "bt", "push", "call", "jmp", "mul", "imul", "div", "idiv", "fld", "fild", "ldmxcsr", "comiss", "comisd",
             "ucomiss", "ucomisd", "vcomiss", "vucomiss", "ptest"}  # fmt: skip
WRITE_ONLY = re.compile(r"v?mov|set|v?pextr|v?extract|stmxcsr|fn?st|fist|pop$|stos|movs")
GONE = "gone"  # in place of a kind
NO_ACCESS = re.compile(r"lea$|nop|prefetch|endbr|fnop|clflush")
NO_RESULT = {"cmp", "test", "bt", "push", "jmp", "call", "nop", "ucomiss", "ucomisd", "comiss", "comisd"}
FUNCTION_OF_OPERANDS = {"add", "sub", "inc", "dec", "neg", "imul", "and", "or", "xor", "not", "shl", "sal", "shr", "sar", "rol", "ror",
                        "bswap"}  # fmt: skip
ALSO_CHANGES = {"mul": ("rax", "rdx"), "div": ("rax", "rdx"), "idiv": ("rax", "rdx"), "cdq": ("rdx",), "cqo": ("rdx",),
                "cpuid": ("rax", "rbx", "rcx", "rdx"), "rdtsc": ("rax", "rdx"), "cmpxchg": ("rax",), "cwd": ("rdx",)}  # fmt: skip


@dataclass(frozen=True)
class Escape:
    """An access that no hook reports."""

    place: str
    kernel: str
    what: str
    code: str  # the instruction
    remedy: str


# ---- values: (number, ((symbol, factor), …)), symbols in ascending order ----


def number(n):
    n &= (1 << 64) - 1
    return (n - (1 << 64) if n >> 63 else n, ())


def plus(a, b, factor=1):
    if not b[1]:
        return (a[0] + b[0] * factor, a[1])
    terms = dict(a[1])
    for symbol, times in b[1]:
        terms[symbol] = terms.get(symbol, 0) + times * factor
    return (a[0] + b[0] * factor, tuple(sorted((s, t) for s, t in terms.items() if t)))


class Symbols:
    """Numbers for unknown values, by where they come from; and what is known of each."""

    def __init__(self):
        self.numbers, self.kinds, self.narrow = {}, [], set()

    def get(self, key, kind=None, narrow=False):
        """The value that is this symbol. Kind: "stack", "image", "thread" for an address there, or an argument register."""
        symbol = self.numbers.setdefault(key, len(self.kinds))
        if symbol == len(self.kinds):
            self.kinds.append(kind)
            if narrow:
                self.narrow.add(symbol)
        return (0, ((symbol, 1),))

    def kind(self, value):
        """Where an address lies: base and index may be any sum in which exactly one symbol is an address that we know."""
        known = [(self.kinds[s], times) for s, times in value[1] if self.kinds[s] is not None]
        return known[0][0] if len(known) == 1 and known[0][1] == 1 else None

    def is_narrow(self, value):
        """Surely below 2^32."""
        if not value[1]:
            return 0 <= value[0] < 1 << 32
        return value[0] == 0 and len(value[1]) == 1 and value[1][0][1] == 1 and value[1][0][0] in self.narrow


@dataclass
class State:
    """What the registers and the stack hold, and which accesses were reported, at one point of the code."""

    values: dict  # {register, or (stack symbol, offset, bytes): value}
    facts: dict  # {(terms, "read" or "write"): [(offset, bytes)]}

    def copy(self):
        return State(dict(self.values), {key: list(spans) for key, spans in self.facts.items()})


# ---- one function ----


class Follower:
    """Follows one function's code. Finds escapes, and what the callers have to answer for."""

    def __init__(self, function):
        self.function = function
        self.symbols = Symbols()
        self.frames = set()  # what the stack pointer may be, but for a number
        self.meets = collections.defaultdict(dict)  # {block: {place: (kind, first place of those alike)}}: what differs between the ways into it
        self.escapes = []  # (instruction, what, remedy)
        self.through_arguments = []  # (argument register, instruction, what, remedy)
        self.calls = []  # (instruction, callee, {argument register: kind})
        self.reported = []  # (instruction, "read" or "write"): calls of hooks, but for the stack and the like
        self._run()

    def _run(self):
        """Passes over the blocks, until one finds nothing new. A pass takes what comes round a loop to be what entered it, but for
        the meets that earlier passes found; at its end it looks which of this does not hold. Nothing of it is older than the pass: what
        an inner loop sends round is never compared with what a later round of the outer loop sends in."""
        self.before = {block: [] for block in self.function.blocks}
        for block, following in self.function.successors.items():
            for other in following:
                self.before[other].append(block)
        order, settled = self._order(), False
        while not settled:
            self.out, entries = {}, {}  # the states behind each block, and before it
            for block in order:
                entries[block] = self._entry(block)
                self.out[block] = self._follow(block, entries[block].copy(), False)
            assumed = {block: dict(places) for block, places in self.meets.items()}
            for block in order:  # once more, now with what comes round
                self._entry(block)
            settled = self.meets == assumed
        for block in order:
            self._follow(block, entries[block], True)

    def _order(self):
        """The blocks, each behind those that lead to it but for the ways round a loop. Sets the roots, where the function is entered."""
        blocks, done, order = self.function.blocks, set(), []
        self.roots = {block for block in blocks if not self.before[block]} | {min(blocks)}
        for root in [*sorted(self.roots), *sorted(blocks)]:
            if root not in done:  # the last ones are in a loop that is only entered by an exception
                self.roots.add(root)
                done.add(root)
                path = [(root, iter(self.function.successors[root]))]
                while path:
                    following = next((block for block in path[-1][1] if block not in done), None)
                    if following is None:
                        order.append(path.pop()[0])
                    else:
                        done.add(following)
                        path.append((following, iter(self.function.successors[following])))
        return order[::-1]

    def _entry(self, block):
        """The state before a block, by the ways into it that were followed. Of what differs between them, the kind is kept, and which
        registers and slots differ in the same way: they hold one symbol, each with a number."""
        incoming = [self.out[b] for b in self.before[block] if b in self.out]
        if block in self.roots:
            incoming.append(self._start(block))
        if len(self.before[block]) == 1 and len(incoming) == 1:
            return incoming[0].copy()
        merged, meets, alike = {}, self.meets[block], {}
        for place in sorted(set().union(*(state.values for state in incoming)), key=str):
            values = [state.values.get(place) for state in incoming]
            if None in values or meets.get(place) == GONE:  # a slot that was not stored on every way
                meets[place] = GONE
            elif len(set(values)) > 1 or place in meets:
                kinds = {self.symbols.kind(value) for value in values}
                kind = kinds.pop() if len(kinds) == 1 else None
                kind_before, first_before = meets.get(place, (kind, None))
                kind = kind if kind == kind_before else None
                start = values[0][0]
                pattern = (first_before, *((value[0] - start, value[1]) for value in values))
                first, first_start = alike.setdefault(pattern, (place, start))
                meets[place] = kind, first
                merged[place] = plus(self.symbols.get(("meet", block, first, kind), kind), number(start - first_start))
            else:
                merged[place] = values[0]
        return State(merged, {})

    def _start(self, block):
        """At the function's first instruction; or at one to which no jump leads, a handler of exceptions: inside the frame."""
        values = {name: self.symbols.get(("at entry", name)) for name, _ in REGISTERS.values()}
        values["rsp"] = self._frame("stack")
        if block == self.function.instructions[0].address and ".cold" not in self.function.symbol:
            values |= {name: self.symbols.get(("argument", name), name) for name in ARGUMENTS}
        else:
            values["rbp"] = plus(values["rsp"], number(-8))
            values["rsp"] = self._frame("deep in the stack")
        return State(values, {})

    def _frame(self, key):
        value = self.symbols.get(key, "stack")
        self.frames.add(value[1][0])
        return value

    # ---- one block ----

    def _follow(self, block, state, judge):
        self.state, self.judge = state, judge
        for instruction in self.function.blocks[block]:
            self._step(instruction)
        return self.state

    def _step(self, i):
        operands = [memory_operand(text) or text for text in i.operands]
        self._accesses(i, operands)
        if i.opcode == "call" or (i.opcode.startswith("j") and i.target is None):
            self._call(i)
        else:
            self._effect(i, operands)

    # ---- values of operands ----

    def _register(self, name):
        whole, bits = REGISTERS[name]
        value = self.state.values.get(whole) or self.symbols.get(("unknown", whole))
        if bits == 64:
            return value
        if bits == 32:
            return value if self.symbols.is_narrow(value) else self.symbols.get(("low half", value), narrow=True)
        return self.symbols.get(("part", name, value), narrow=True)

    def _address(self, memory, i):
        value = number(memory.offset)
        for name, times in ((memory.base, 1), (memory.index, memory.scale)):
            if name in REGISTERS:
                value = plus(value, self._register(name), times)
        if memory.segment == "fs":
            value = plus(value, self.symbols.get("thread", "thread"))
        elif memory.base == "rip" or (memory.base is None and i.symbol):
            value = plus(value, self.symbols.get(("image", i.symbol), "image"))
        return value

    def _slot(self, address, width):
        """The name of a slot of the stack, if the address is a constant one in the frame."""
        if len(address[1]) == 1 and address[1][0] in self.frames:
            return (address[1][0][0], address[0], width)
        return None

    def _value(self, operand, i):
        if isinstance(operand, Memory):
            if operand.width == 0:
                return self._address(operand, i)
            return self._loaded(operand, i)
        if operand in REGISTERS:
            return self._register(operand)
        if re.fullmatch(r"-?0x[0-9a-f]+|-?\d+", operand):
            if i.symbol and i.opcode == "mov":
                return self.symbols.get(("image", i.symbol), "image")
            return number(int(operand, 16 if "0x" in operand else 10))
        return self._new(i, operand)

    def _loaded(self, memory, i):
        address = self._address(memory, i)
        slot = self._slot(address, memory.width)
        if memory.segment == "fs" and memory.base is None and memory.offset == 0:
            return self.symbols.get("thread", "thread")
        if memory.base == "rip":  # a constant, or what the linker puts into a table
            return self.symbols.get(("constant", i.symbol), "image" if "@" in str(i.symbol) else None)
        if slot is not None and slot in self.state.values:
            return self.state.values[slot]
        value = self._new(i, "loaded", narrow=memory.width <= 4)
        if slot is not None:
            self.state.values[slot] = value
        return value

    def _new(self, i, what, kind=None, narrow=False):
        """A value of which nothing is known but that this instruction made it. (What it made in an earlier round of a loop came
        through a meet, and is another symbol.)"""
        return self.symbols.get(("made", i.address, what), kind, narrow)

    def _set(self, name, value):
        """Writes a register by any of its names."""
        whole, bits = REGISTERS[name]
        if bits == 32 and not self.symbols.is_narrow(value):
            value = self.symbols.get(("low half", value), narrow=True)
        self.state.values[whole] = value

    # ---- accesses ----

    def _accesses(self, i, operands):
        if NO_ACCESS.match(i.opcode):
            return
        repeated = self._register("rcx") if i.text.startswith("rep") else number(1)  # rep stos, rep movs
        for at, operand in enumerate(operands):
            if not isinstance(operand, Memory) or operand.segment in ("fs", "gs") or operand.width == 0:
                continue
            size = operand.width * repeated[0] if not repeated[1] else None
            if at > 0 or i.opcode in READ_ONLY:
                kinds = ("read",)
            else:
                kinds = ("write",) if WRITE_ONLY.match(i.opcode) else ("read", "write")
            for kind in kinds:
                self._check(i, self._address(operand, i), size, kind)

    def _check(self, i, address, size, kind):
        if not self.judge or self.symbols.kind(address) in ELSEWHERE:
            return
        spans = self.state.facts.get((address[1], kind), ())
        if size is not None and any(begin <= address[0] and address[0] + size <= begin + length for begin, length in spans):
            return
        amount = "as many bytes as it finds" if size is None else f"{size} byte{'s' if size > 1 else ''}"
        verb = "reads" if kind == "read" else "writes"
        call = "device::load(&…)" if kind == "read" else "device::store(&…, value)"
        remedy = f"use {call}" if size in (2, 4, 8, 16) else f"use {call}, 2, 4, 8 or 16 bytes at a time"
        self._found(i, address, f"{verb} {amount}", remedy)

    def _found(self, i, address, what, remedy):
        """An escape; or, if the address is an argument's, a matter for the callers."""
        argument = self.symbols.kind(address)
        if argument in ARGUMENTS:
            self.through_arguments.append((argument, i, what, remedy))
        else:
            self.escapes.append((i, what, remedy))

    # ---- calls ----

    def _call(self, i):
        callee = i.symbol
        memory = memory_operand(i.operands[-1])
        if callee is None or i.operands[-1] in REGISTERS or (memory and memory.base != "rip"):
            if self.judge:
                remedy = "call the function by its name" if i.opcode == "call" else "compile with -fno-jump-tables"
                self.escapes.append((i, "goes where this check cannot follow", remedy))
        elif match := HOOK.match(callee):
            size = self._register("rsi") if match[2] == "_range" else number(int(match[2]))
            self._fact(match[1], size)
            if self.judge and self.symbols.kind(self._register("rdi")) not in ELSEWHERE:
                self.reported.append((i, match[1]))
            return self._clobber(i)
        elif SILENT_HOOK.match(callee):
            return self._clobber(i)
        elif REPORT.match(callee):
            self.state.facts.clear()
            writes = "store" in callee or ("access" in callee and self._register("rdx") != number(0))
            self._fact("write" if writes else "read", self._register("rsi"))
            if "atomic_store" in callee:  # an exchange, which reads what it replaces
                self._fact("read", self._register("rsi"))
            return self._clobber(i)
        elif self.judge:
            self._judge_call(i, callee)
        self.state.facts.clear()
        if i.opcode == "call":
            self._clobber(i)

    def _fact(self, kind, size):
        if not size[1]:
            address = self._register("rdi")
            self.state.facts.setdefault((address[1], kind), []).append((address[0], size[0]))

    def _judge_call(self, i, callee):
        arguments = {name: self._register(name) for name in ARGUMENTS}
        if (plain := callee if callee in POINTERS else callee.removesuffix("f")) in POINTERS:
            for name in POINTERS[plain].split():
                if self.symbols.kind(arguments[name]) not in ELSEWHERE:
                    self._found(i, arguments[name], f"lets {callee}() access memory", "copy or set it element by element")
        elif ATOMIC_HOOK.match(callee):
            if self.symbols.kind(arguments["rdi"]) != "stack":
                self._found(i, arguments["rdi"], "an atomic that the simulator does not know", "use atomicAdd() and its like")
        elif callee not in HARMLESS and not ARITHMETIC.fullmatch(callee):
            self.calls.append((i, callee, {name: self.symbols.kind(value) for name, value in arguments.items()}))

    def _clobber(self, i):
        for name in LOST_IN_CALLS:
            self.state.values[name] = self._new(i, name)

    # ---- what an instruction does to registers and stack ----

    def _effect(self, i, operands):
        opcode, values = i.opcode, self.state.values
        if opcode == "push":
            pushed = self._value(operands[0], i)
            values["rsp"] = plus(values["rsp"], number(-8))
            self._store(values["rsp"], 8, pushed)
        elif opcode == "pop":
            slot = self._slot(values["rsp"], 8)
            self._assign(i, operands[0], values.get(slot) or self._new(i, "popped"))
            values["rsp"] = plus(values["rsp"], number(8))
        elif opcode == "leave":
            slot = self._slot(values["rbp"], 8)
            values["rsp"] = plus(values["rbp"], number(8))
            values["rbp"] = values.get(slot) or self._new(i, "rbp")
        elif opcode in ("mov", "movabs"):
            self._assign(i, operands[0], self._value(operands[1], i))
        elif opcode == "lea":
            self._assign(i, operands[0], self._address(operands[1], i))
        elif opcode in ("cdqe", "cwde"):
            source, target = ("eax", "rax") if opcode == "cdqe" else ("ax", "eax")
            self._set(target, self.symbols.get(("signed", self._register(source))))
        elif opcode in ("movsxd", "movsx", "movzx"):
            value = self._value(operands[1], i)
            if opcode != "movzx":
                value = self.symbols.get(("signed", value))
            self._assign(i, operands[0], value)
        elif opcode not in NO_RESULT and operands and operands != ["ax", "ax"]:  # "xchg ax,ax" only fills space
            self._compute(i, operands)
        for name in ALSO_CHANGES.get(opcode, ()):
            values[name] = self._new(i, name)
        if any(isinstance(operand, Memory) and operand.segment == "es" for operand in operands):  # stos, movs
            for name in ("rcx", "rsi", "rdi"):
                values[name] = self._new(i, name)
        if opcode in ("xchg", "xadd") and operands[1] in REGISTERS and operands[0] != operands[1]:
            self._set(operands[1], self._new(i, "exchanged"))

    def _compute(self, i, operands):
        """An instruction that changes its first operand: a register or a slot."""
        target, opcode = operands[0], i.opcode
        if not isinstance(target, Memory) and target not in REGISTERS:
            return  # a vector register: addresses do not live there
        bits = 8 * target.width if isinstance(target, Memory) else REGISTERS[target][1]
        sources = [self._value(operand, i) for operand in operands]
        first, last = sources[0], sources[-1]
        if opcode in ("xor", "sub") and len(operands) == 2 and operands[0] == operands[1]:
            result = number(0)
        elif opcode in ("add", "sub") and bits == 64:
            result = plus(first, last, 1 if opcode == "add" else -1)
        elif opcode in ("inc", "dec") and bits == 64:
            result = plus(first, number(1 if opcode == "inc" else -1))
        elif opcode == "neg" and bits == 64:
            result = plus(number(0), first, -1)
        elif opcode in ("shl", "sal") and bits == 64 and len(sources) == 2 and not last[1]:
            result = plus(number(0), first, 1 << (last[0] & 63))
        elif opcode == "imul" and bits == 64 and len(sources) > 1 and not last[1]:
            result = plus(number(0), sources[-2], last[0])
        elif opcode == "and" and bits == 64 and self.symbols.kind(first) == "stack":
            result = self._frame(("rounded", first, last))
        elif opcode in FUNCTION_OF_OPERANDS:
            result = self.symbols.get((opcode, bits, *sources), narrow=bits <= 32)
        elif opcode.startswith("cmov"):
            kinds = {self.symbols.kind(source) for source in sources}
            result = self._new(i, "chosen", "stack" if kinds == {"stack"} else None, narrow=bits <= 32)
        else:
            result = self._new(i, "computed", narrow=bits <= 32)
        self._assign(i, target, result)

    def _assign(self, i, target, value):
        if isinstance(target, Memory):
            self._store(self._address(target, i), target.width, value)
        elif target in REGISTERS:
            self._set(target, value if REGISTERS[target][1] >= 32 else self._new(i, "part"))

    def _store(self, address, width, value):
        """Into a slot of the stack: what overlapped it is gone. Elsewhere, nothing that we follow changes."""
        slot = self._slot(address, width)
        if slot is None:
            return
        symbol, offset, _ = slot
        values = self.state.values
        for other in [o for o in values if isinstance(o, tuple)]:
            if other[0] != symbol or (other[1] < offset + width and offset < other[1] + other[2]):
                del values[other]
        values[slot] = value


# ---- an object ----


def escapes_of(code):
    """Follows every kernel of an object, and what it calls. Returns (kernels, functions followed, [Escape])."""
    kernels = code.kernels()
    followers, found = {}, {}
    for kernel in kernels.values():
        functions = code.reached_from(kernel)
        for symbol, function in functions.items():
            if symbol not in followers:
                followers[symbol] = Follower(function)
        for escape in _of_kernel(kernel, kernels, {symbol: followers[symbol] for symbol in functions}):
            found.setdefault((escape.place, escape.what, escape.code), escape)
    return len(kernels), len(followers), sorted(found.values(), key=lambda escape: in_source_order(escape.place))


def _of_kernel(kernel, kernels, followers):
    def escape(i, what, remedy):
        return Escape(i.place, kernel.name, what, i.text, remedy)

    for follower in followers.values():
        yield from (escape(*found) for found in follower.escapes)
        yield from (escape(*found) for found in _reported_twice(follower))
    answers = _answers(kernels, followers)
    for symbol, follower in followers.items():
        if symbol in kernels:
            yield from (escape(*found) for _, *found in follower.through_arguments)
        for i, callee, arguments in follower.calls:
            if callee not in followers and not callee.startswith(("_ZN4simt", "_ZNK4simt")):
                yield escape(i, f"calls {callee}, of which this check knows nothing", "if it is harmless, name it in tools/machine_code/hooks.py")
            for argument, (_, what, remedy) in answers.get(callee, {}).items():
                kind = arguments[argument]
                if kind not in ELSEWHERE and (kind not in ARGUMENTS or symbol in kernels):
                    yield escape(i, f"{what}, in a function that gets its address", remedy)


def _answers(kernels, followers):
    """What functions do, unreported, to memory whose address they got: {function: {argument register: (instruction, what,
    remedy)}}. An argument may be passed on, function by function."""
    answers = {symbol: {} for symbol in followers if symbol not in kernels}
    for symbol, mine in answers.items():
        for argument, *found in followers[symbol].through_arguments:
            mine.setdefault(argument, found)
    settled = False
    while not settled:
        settled = True
        for symbol, mine in answers.items():
            for _, callee, arguments in followers[symbol].calls:
                for argument, found in list(answers.get(callee, {}).items()):
                    if arguments[argument] in ARGUMENTS and arguments[argument] not in mine:
                        mine[arguments[argument]] = found
                        settled = False
    return answers


def _reported_twice(follower):
    """simt::load, store and atomic report their access themselves: what else reports, there or in what they call, counts double.
    The lambda of an atomic only works on copies."""
    if not follower.function.name.startswith(("simt::load<", "simt::store<", "simt::atomic<")):
        return
    for i in follower.function.instructions:
        if i.opcode == "call" and HOOK.match(i.symbol or ""):
            yield i, "reports its access twice: by itself and by a hook", "mark the function no_sanitize_thread"
    for i, callee, _ in follower.calls:
        if not is_local(callee):
            yield i, f"reports its access, and lets {callee} make it, which may report it again", "copy with memcpy, which is inlined"
