"""Makes C++ for the simulator of files of plain CUDA, as if they were one: plain_cuda.py OUT.cu IN.cu…

What of CUDA is no C++ becomes a call on the line where it stands, so that line numbers stay:

    kernel<<<grid, block, bytes, stream>>>(a, b)   plain::launch(kernel, plain::configured(…, grid, block, bytes, stream))(a, b)
    __shared__ float partial[256];                 auto& partial = plain::shared<struct kernel>().partial;
    extern __shared__ float all[];                 float* const all = plain::dynamic_shared<float>();
    cudaMalloc(&x, bytes)                          plain::cudaMalloc("x", &x, bytes), and so the other calls of CUDA's runtime
    asm("mma.sync… {%0, …" : "+f"(x), … : …)       plain::mma_m16n8k16(x, …): of inline PTX there is what INSTRUCTIONS has, as written there

A kernel's __shared__ variables are the members of a struct that bears the kernel's name: so the simulator's reports say
"row_sum::partial[3]". A call of CUDA's runtime that common/runtime/plain_cuda.h does not have is refused by name, with its line, and so
is what else plain CUDA has and the simulator has not.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

HEADER = "common/runtime/plain_cuda.h"
OTHER_WORDS = {  # of CUDA, that a first kernel does not need
    "__constant__": "constant memory",
    "__managed__": "managed memory",
    "__grid_constant__": "grid constants",
    "__cluster_dims__": "clusters",
    "cooperative_groups": "cooperative groups",
    "texture": "textures",
}
INSTRUCTIONS = {  # of inline PTX: the function of HEADER, and the constraints of its operands
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};": ("mma_m16n8k16", ["+f"] * 4 + ["r"] * 6),
}


class Refused(Exception):
    """What the file has and the simulator does not serve; the text names it and its line."""


@dataclass
class Kernel:
    name: str
    begin: int  # of its declaration, a template line included
    body: tuple  # (position of {, position after })
    is_template: bool


def blanked(text):
    """The text with spaces for comments and strings, newlines kept: whatever is found in it is code."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def closing(code, position, opening, end):
    """The position after the bracket that closes the one at `position`."""
    depth = 0
    for at in range(position, len(code)):
        depth += (code[at] == opening) - (code[at] == end)
        if depth == 0:
            return at + 1
    raise Refused(f"{line_of(code, position)}: this {opening} is never closed")


def kernels(code):
    """Every kernel that the file defines."""
    found = []
    head = re.compile(r"(template\s*<[^<>]*>\s*)?(?:static\s+)?__global__\s+(?:static\s+)?void\s+(?:__launch_bounds__\s*\([^()]*\)\s*)?(\w+)\s*\(")
    for match in head.finditer(code):
        after = closing(code, match.end() - 1, "(", ")")
        brace = re.compile(r"\s*\{").match(code, after)
        if brace:
            begin = brace.end() - 1
            found.append(Kernel(match[2], match.start(), (begin, closing(code, begin, "{", "}")), match[1] is not None))
    return found


def shared_edits(code, kernel):
    """[(begin, end, new text), …] for the __shared__ variables of a kernel, and whether it has any of fixed size."""
    edits, members, extern = [], [], None
    for match in re.compile(r"(extern\s+)?__shared__\s+([^;]*);").finditer(code, *kernel.body):
        where = line_of(code, match.start())
        declared = re.fullmatch(r"((?:alignas\(\w+\)\s+)?[\w:<>]+(?:\s+[\w:<>]+)*?)\s+(\w+)((?:\s*\[[^\]]*\])*)\s*", match[2])
        if not declared:
            raise Refused(f"{where}: __shared__ {' '.join(match[2].split())}: one variable a declaration, without an initial value")
        kind, name, sizes = declared.groups()
        inside = [word for word in re.findall(r"[A-Za-z_]\w*", sizes) if re.search(rf"\bconst(?:expr)?\s[^;=]*\b{word}\s*[={{]", code[slice(*kernel.body)])]
        if inside:
            raise Refused(f"{where}: the size of {name} needs {inside[0]}, which {kernel.name} declares: declare it before the kernel")
        if match[1]:
            if extern or sizes.strip() != "[]":
                raise Refused(f"{where}: a kernel has one extern __shared__ array, of the form extern __shared__ {kind} {name}[];")
            extern = (match, kind, name)
        else:
            members.append(f"{kind} {name}{sizes};")
            edits.append((match.start(), match.end(), f"auto& {name} = plain::shared<struct {kernel.name}>().{name};"))
    if (members or extern) and kernel.is_template:
        raise Refused(f"{line_of(code, kernel.begin)}: {kernel.name} is a template with __shared__ variables")
    if members:
        edits.append((kernel.begin, kernel.begin, f"struct {kernel.name} {{ {' '.join(members)} }}; "))
    if extern:
        match, kind, name = extern
        behind = f"<{kind}, struct {kernel.name}>" if members else f"<{kind}>"
        edits.append((match.start(), match.end(), f"{kind}* const {name} = plain::dynamic_shared{behind}();"))
    return edits, bool(members)


def check_kernel(code, kernel):
    """Refuses functions of the host in a kernel: a plain call of nvcc does, too."""
    match = re.compile(r"\bstd::(\w+)\s*(?:<[^<>();]*>)?\s*\(").search(code, *kernel.body)
    if match:
        instead = {"max": "fmaxf, or max of integers", "min": "fminf, or min of integers", "abs": "fabsf"}.get(match[1], f"{match[1]}f, or a function of your own")
        raise Refused(f"{line_of(code, match.start())}: std::{match[1]} is a function of the host, and {kernel.name} is a kernel: use {instead}")


def launch_edits(code, has_shared):
    """[(begin, end, new text), …] for the launches; has_shared: {kernel: whether it has __shared__ variables of fixed size}."""
    edits = []
    for match in re.finditer(r"(\w+)(\s*<[^<>;]*>)?\s*<<<", code):
        end = code.find(">>>", match.end())
        if end < 0:
            raise Refused(f"{line_of(code, match.start())}: this <<< has no >>>")
        name = match[1]
        if name not in has_shared:
            raise Refused(f"{line_of(code, match.start())}: {name} is launched, but it is no kernel of this file")
        fixed = f"sizeof(struct {name})" if has_shared[name] else "0"
        configuration = code[match.end() : end]
        edits.append((match.start(), end + 3, f"plain::launch({name}{match[2] or ''}, plain::configured({fixed}, {configuration}))"))
    return edits


def provided():
    """The calls of CUDA's runtime that the header declares."""
    header = Path(__file__).resolve().parent.parent / HEADER
    return set(re.findall(r"\b(cuda[A-Z]\w*[a-z])\(", blanked(header.read_text())))


def call_edits(code):
    """[(begin, end, new text), …] for the calls of CUDA's runtime. Refuses what the simulator does not have."""
    known, edits = provided(), []
    for match in re.finditer(r"(?<!::)\b(cuda[A-Z]\w*)\s*\(", code):
        name = ""
        if match[1] == "cudaMalloc":
            pointer = re.compile(r"\s*(?:\([^()]*\)\s*)?&?\s*([^,]*)").match(code, match.end())[1]
            name = f'"{" ".join(pointer.split())}", '
        edits.append((match.start(), match.end(), f"plain::{match[1]}({name}"))
        if match[1] not in known:
            raise Refused(
                f"{line_of(code, match.start())}: {match[1]} is none of the calls that the simulator has for plain CUDA: {', '.join(sorted(known))}"
            )
    for word, what in OTHER_WORDS.items():
        match = re.search(rf"\b{word}\b", code)
        if match:
            raise Refused(f"{line_of(code, match.start())}: {word}: the simulator has no {what} for plain CUDA")
    return edits


def parts_of(code, begin, end, separator):
    """[(begin, end), …] of what stands between the separators that no bracket encloses."""
    parts, depth = [], 0
    for at in range(begin, end):
        depth += (code[at] in "([{") - (code[at] in ")]}")
        if code[at] == separator and depth == 0:
            parts.append((begin, at))
            begin = at + 1
    return [*parts, (begin, end)]


def asm_edits(text, code):
    """[(begin, end, new text), …] for inline PTX."""
    known = {re.sub(r"\s", "", template): served for template, served in INSTRUCTIONS.items()}
    edits = []
    for match in re.finditer(r"\b(?:asm|__asm__|__asm)\b(?:\s+volatile\b)?\s*(\()?", code):
        served, operands = None, []
        if match[1]:
            end = closing(code, match.end() - 1, "(", ")")
            (begin, end_of_template), *lists = parts_of(code, match.end(), end - 1, ":")
            template = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', text[begin:end_of_template]))
            served = known.get(re.sub(r"\s|\\[nt]", "", template))
            given = [text[slice(*part)] for one in lists for part in parts_of(code, *one, ",")]
            operands = [re.fullmatch(r'\s*"([^"]*)"\s*\((.*)\)\s*', one, re.DOTALL) for one in given]
        if served is None or len(lists) != 2 or not all(operands) or [operand[1] for operand in operands] != served[1]:
            forms = "; ".join(f"{template} with the operands {' '.join(constraints)}" for template, (_, constraints) in INSTRUCTIONS.items())
            raise Refused(f"{line_of(code, match.start())}: asm: of inline PTX the simulator has for plain CUDA: {forms}")
        edits.append((match.start(), end, f"plain::{served[0]}({', '.join(operand[2] for operand in operands)})"))
    return edits


def rewrite(text, name):
    """The C++ of a file of plain CUDA whose name reports shall show, without HEADER. Raises Refused."""
    code = blanked(text)
    edits, has_shared = [], {}
    for kernel in kernels(code):
        check_kernel(code, kernel)
        of_kernel, has_shared[kernel.name] = shared_edits(code, kernel)
        edits += of_kernel
    inside = [edit for edit in edits if edit[0] != edit[1]]
    for match in re.finditer(r"__shared__", code):
        if not any(begin <= match.start() < end for begin, end, _ in inside):
            raise Refused(f"{line_of(code, match.start())}: __shared__ stands outside a kernel")
    edits += launch_edits(code, has_shared) + call_edits(code) + asm_edits(text, code)
    for match in re.finditer(r"#\s*include\s*<cuda_runtime(?:_api)?\.h>", code):
        edits.append((match.start(), match.end(), ""))  # HEADER has its place
    for begin, end, new in sorted(edits, reverse=True):
        lost = text.count("\n", begin, end) - new.count("\n")
        text = text[:begin] + new + "\n" * lost + text[end:]
    return f'#line 1 "{name}"\n{text}'


def main():
    out, *sources = map(Path, sys.argv[1:])
    made = [f'#include "{HEADER}"\n']
    for source in sources:
        try:
            made.append(rewrite(source.read_text(), source.resolve()))
        except Refused as refused:
            sys.exit(f"{source}:{refused}")
    out.write_text("".join(made))


if __name__ == "__main__":
    main()
