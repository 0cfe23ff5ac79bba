#!/usr/bin/env python3
"""Writes one variant of a step as one file to take away: kernels, the helpers that they need, the launch, and a main() that checks.

    make single STEP=05 VARIANT=tuned [OUT=path]       writes build/single/05_tuned.cu and prints the line that builds it
    tools/learn/single.py --list                       every step and variant that it can write

It reads step.cu and what that includes, finds the variant in the step's table, and keeps the declarations that its launch needs,
in the order of the sources (tools/learn/declarations.py). The host's side (what a launch takes, memory, inputs, the check) is
tools/learn/single_file/, a file for each family of problems. Exit status 2: bad usage, or a step or variant that there is not.
"""

import argparse
import functools
import re
import subprocess
import sys
import textwrap
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.learn.declarations import (
    ParseError,
    matching,
    parse,
    preprocessed,
    split,
    substituted,
    uses_of,
)

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = {"Attention": "attention", "Backward": "backward", "Gemm": "gemm", "Linear": "linear", "Softmax": "softmax"}
PARTS = "tools/learn/single_file"
HOST_NAMESPACES = ("host", "runtime")  # of the host's side in a single file: run:: and problem:: become host::
HOSTS = [(name,) for name in HOST_NAMESPACES]
ANY_SHAPE = {"AnyShape", "PackedShape"}  # a kernel for every option, which is compiled once, knows those that a file leaves out
LEFT_OUT_SHAPES = ("PackedShape", "Dropped", "ScoredShape")  # and what is written for them
OF_SCORES = {"has_score_options", "modify_scores", "scores_with_others"}  # and these
THE_TABLE = "what the table of variants says"  # in the place of a file's name: the part that is made of it
THE_STEP = "// [the step]"  # where a family's file is cut in two
# The project's host side, whose names the family's file gives. What includes it is host code, too.
HOST_SIDE = ("common/run/", "common/runtime/", "common/problem/", "common/reference/", "common/check/")
OF_KERNELS = ("common/device/", "common/launches/", "steps/")
LEFT_OUT = re.compile(r"simulat|`make |\bexercises?\b|tests\b", re.IGNORECASE)  # sentences about the rest of the project
WIDTH = 127
# What is no type or type trait of the standard library may be a constexpr function, which nvcc lets device code call under a flag.
STANDARD_CALL = re.compile(r"\bstd::(?!u?int\d+_t|u?intptr_t|size_t|is_\w+|conditional\w*|remove_\w+|type_identity\w*)")


class UsageError(Exception):
    """What cannot be written as asked; exit status 2."""


@dataclass
class Variant:
    step: str  # "05_flash_v2"
    name: str
    values: dict  # of the table: {"idea": "…", "launch": "launch_tuned", …}, as C++
    family: str
    type: str  # "Attention"
    files: list = field(default_factory=list)  # that it is made of, once it is written
    relaxed: bool = False  # does device code call constexpr functions of the standard library?

    @property
    def number(self):
        return self.step.split("_")[0]


# ---- the step's table of variants ----


class Step:
    """The sources of a step, and its variants."""

    def __init__(self, root, name):
        self.root, self.name = root, name
        self.sources = {}
        self.path = f"steps/{name}/step.cu"
        for path in sorted((root / "steps" / name).glob("*.cu")):  # what is compiled apart; step.cu calls it
            if path.name != "step.cu":
                self.read(f"steps/{name}/{path.name}")
        self.read(self.path)
        own = self.sources[self.path].declarations
        self.sparse = any(re.search(r"\.sparse_q\b", d.code) for d in own)  # does it take masks of blocks?
        # Has it launches in clusters, or dependent ones?
        self.attributes = any(re.search(r"\.(?:cluster|dependent) =", d.code) for s in self.sources.values() for d in s.declarations)
        self.variants, self.types = {}, []
        tables = [d for d in own if re.search(r"Variant>\s+\w+\s*=", d.code)]  # one for each pass
        if not tables:
            raise UsageError(f"{name} has no table of variants")
        for table in tables:
            type_of = re.search(r"(\w+)Variant>", table.code)[1]
            if type_of not in FAMILIES:
                raise UsageError(f"{self.path}: there is no {PARTS}/ file for the family of {type_of}Variant")
            self.types.append(type_of)
            start = table.code.index("{", table.code.index("="))
            for entry in split(table.code[start + 1 : matching(table.code, start)]):
                values = {key: chosen(value) for key, value in self.evaluated(entry).items()}
                values = {key: value for key, value in values.items() if value != "nullptr"}
                if values.get("compute_capability", "").endswith("least_compute_capability"):
                    del values["compute_capability"]  # that of every variant which does not name one
                name_of = literal(values["name"])
                self.variants[name_of] = Variant(name, name_of, values, FAMILIES[type_of], type_of)

    def read(self, path, features=()):
        """Reads a file of the project and what it includes; returns whether it belongs to the host's side."""
        if path in self.sources:
            return
        self.sources[path] = None  # includes may not go round
        source = parse(preprocessed((self.root / path).read_text(), features), path)
        for include in source.includes:
            if not include.startswith(HOST_SIDE):
                self.read(include, features)
        del self.sources[path]
        self.sources[path] = source  # in the order in which the compiler sees them

    def is_host(self, path):
        source = self.sources[path]
        return any(include.startswith(HOST_SIDE) or self.is_host(include) for include in source.includes)

    def evaluated(self, expression):
        """The values of an entry of the table, {.name = …} or a call of a function that returns one."""
        entry = " ".join(expression.split())
        for _ in range(10):
            expression = expression.strip()
            if braces := re.match(r"(?:[\w:]*Variant)?\s*\{", expression):
                inside = expression[braces.end() : matching(expression, braces.end() - 1)]
                # Behind a comma there may be a comment on what stands before it.
                pairs = [re.match(r"(?:\s*//[^\n]*\n)*\s*\.(\w+)\s*=\s*(.*)", part, re.DOTALL) for part in split(inside)]
                if not all(pairs):
                    break
                return {pair[1]: pair[2] for pair in pairs}
            expression = self.returned(expression)
            if expression is None:
                break
        raise UsageError(f"{self.path}: this entry of the table of variants is not understood: {entry[:80]}")

    def returned(self, call):
        """What a call returns, its parameters replaced by the arguments; None if it is no call of a function of the step."""
        called = re.match(r"(\w+)", call)
        functions = [d for s in self.sources.values() for d in s.declarations if called and d.kind == "function" and called[1] in d.names]
        if not functions:
            return None
        rest, template_arguments = call[called.end() :], []
        if rest.startswith("<"):
            end = matching(call, called.end())
            template_arguments = split(call[called.end() + 1 : end])
            rest = call[end + 1 :]
        if not rest.startswith("("):
            return None
        arguments = split(rest[1 : matching(rest, 0)])
        code = functions[0].code
        values = {}
        if header := re.match(r"template\s*<", code):
            end = matching(code, header.end() - 1)
            values |= bound(split(code[header.end() : end]), template_arguments)
            code = code[end + 1 :]
        opening = code.index(called[1] + "(") + len(called[1])
        closing = matching(code, opening)
        values |= bound(split(code[opening + 1 : closing]), arguments)
        start = code.index("{", closing)
        statements = split(code[start + 1 : matching(code, start)], ";")
        if not statements or not statements[-1].startswith("return"):
            return None
        for statement in statements[:-1]:
            if local := re.match(r"[\w:<>&*\s]+?\b(\w+)\s*=\s*(.*)", statement, re.DOTALL):
                values[local[1]] = substituted(local[2], values)
        result = re.sub(r"std::move\((\w+)\)", r"\1", statements[-1].removeprefix("return"))
        return substituted(result, values)


def chosen(expression):
    """What `A::b == A::c ? one : other` stands for; `other` may be a question, too."""
    question = re.match(r"(\w+::\w+)\s*==\s*(\w+::\w+)\s*\?\s*(.*?)\s*:\s+(.*)", expression.strip(), re.DOTALL)
    return chosen(question[3 if question[1] == question[2] else 4]) if question else expression


def bound(parameters, arguments):
    """{name of the parameter: its argument}, by place; defaults fill in, `...` takes the rest."""
    values = {}
    for place, parameter in enumerate(parameters):
        declared, _, default = (part.strip() for part in parameter.partition("="))
        name = re.search(r"\([*&](\w+)\)", declared) or re.search(r"(\w+)$", declared)  # void (*name)(int), or int name
        if name is None:
            continue
        if "..." in declared:
            values[name[1]] = ", ".join(arguments[place:])
        elif place < len(arguments):
            values[name[1]] = arguments[place]
        elif default:
            values[name[1]] = default
    return values


def literal(expression):
    """The text of a C++ string."""
    strings = re.findall(r'"((?:\\.|[^"\\])*)"', expression)
    if not strings or re.sub(r'"(?:\\.|[^"\\])*"', "", expression).strip():
        raise UsageError(f"this is no string: {expression}")
    return "".join(strings)


# ---- what a variant needs ----


@functools.cache
def plain(text):
    """The host's names as the single file has them, and nothing of the simulator."""
    text = re.sub(r"(?<![\w:])(?:::)?(?:run|problem)::", "host::", text)
    text = re.sub(r"\b\w+(?:\.|\(\)\.)backend == \"sim\" \? \S+ : ", "", text)
    return plain_comments(text)


def for_both_sides(declaration, text):
    """A constexpr function that does not say where it runs may run on both sides, without a flag of nvcc's."""
    if declaration.kind != "function" or "constexpr" not in declaration.code or "__device__" in declaration.code:
        return text
    return re.sub(r"^((?:inline |static )*constexpr )", r"__host__ __device__ \1", text, count=1, flags=re.MULTILINE)


def without_fallbacks(text, step, variant):
    """Without the kernels of other variants that a launch falls back to: `if (…) return launch_other(l);` becomes a refusal."""
    for other in step.variants.values():
        expression = other.values["launch"]
        if other is variant or expression.startswith("[") or expression == variant.values["launch"]:
            continue
        for found in re.finditer(r"return " + re.escape(expression) + r"\((\w+)\);", text):
            if not re.search(r"\)\s*\{?\s*$", text[: found.start()]):
                continue  # not behind a condition
            refusal = f'throw host::UsageError("this file holds {variant.name} alone; this shape needs the variant {other.name}");'
            return without_fallbacks(text[: found.start()] + refusal + text[found.end() :], step, variant)
    return text


def without_packed(text):
    """Without the kernels for packed sequences and for dropout: a file takes whole batch entries alone."""
    return re.sub(r"\n *static constexpr auto (?:packed|dropped|scored) = [^;]*;", "", text)


def without_scores(text):
    """Without the launches for options of scores, which a file leaves out, too."""
    text = re.sub(r"\n *if \([\w.]+\.has_score_options\(\)\) return [^;]*;", "", text)
    text = re.sub(r"[\w.]+\.has_score_options\(\) \? [^;]*? : ", "", text)
    text = re.sub(r",\s*\.(?:(?:softcap|alibi|bias|sinks|lengths|pages) = true|beyond = scores_with_others)", "", text)
    unnamed = lambda f: f[0] if re.search(rf"\b{f[1]}\b", f[2]) else f"(const Attention&) {{{f[2]}"  # a parameter that nobody reads any more
    return re.sub(r"\(const Attention& (\w+)\) \{(\s*return [^;]*;)", unnamed, text)


def statement_end(text, at):
    """Where the statement that begins there ends: a block, or up to the semicolon."""
    if text[at] != "{":
        return text.index(";", at) + 1
    depth = 1
    while depth:
        at += 1
        depth += (text[at] == "{") - (text[at] == "}")
    return at + 1


def without_scores_of_kernels(text):
    """Without what kernels do for options of scores."""
    text = re.sub(r"\n *modify_scores\([^;]*;", "", text)
    while found := re.search(r"\n *if constexpr \(device::has_score_options<Shape>\) ", text):
        text = text[: found.start()] + text[statement_end(text, found.end()) :]
    return text


def plain_comments(text):
    """Without the sentences of comments that speak of the simulator or of the project's commands."""
    lines, out, i = text.split("\n"), [], 0
    while i < len(lines):
        block = []
        indent = re.match(r"\s*// ", lines[i])
        while i < len(lines) and indent and (lines[i].startswith(indent[0]) and not lines[i].startswith(indent[0] + "  ")):
            block.append(lines[i][len(indent[0]) :])
            i += 1
        if block and LEFT_OUT.search(" ".join(block)):
            sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z⌈`])", " ".join(block))
            kept = " ".join(sentence for sentence in sentences if not LEFT_OUT.search(sentence))
            out += [indent[0] + line for line in textwrap.wrap(kept, WIDTH - len(indent[0]), break_long_words=False, break_on_hyphens=False)]
        elif block:
            out += [indent[0] + line for line in block]
        else:
            line = lines[i]
            if (comment := re.search(r"\s*// (.*)$", line)) and LEFT_OUT.search(comment[1]):
                line = line[: comment.start()]
            if line.strip() or not lines[i].strip():
                out.append(line)
            i += 1
    return "\n".join(out)


class Selection:
    """The declarations that are needed, found from names that are used."""

    def __init__(self, sources):
        self.includes, self.seen = {source.path: source.includes for source in sources}, {}
        self.all = [d for source in sources for d in source.declarations]
        self.by_name = defaultdict(list)
        for declaration in self.all:
            for name in declaration.names:
                self.by_name[name].append(declaration)
        self.chosen = {}  # by id

    def seen_by(self, path):
        """The files that the compiler has seen where this one ends, as far as it includes them itself."""
        if path not in self.seen:
            self.seen[path] = {path}.union(*(self.seen_by(include) for include in self.includes[path] if include in self.includes))
        return self.seen[path]

    def visible(self, qualifier, name, namespaces, path):
        """What a name may mean, used in these namespaces of a file. The host's own names are found only as host::name, or among themselves. Two
        headers of a step that do not include each other may mean different things by one name."""
        found = self.by_name.get(name, [])
        if own := [d for d in found if not qualifier and d.kind == "variable" and (d.path, d.namespaces) == (path, namespaces)]:
            return own  # it hides what a `using namespace` brings
        if path.startswith(OF_KERNELS):  # functions may be defined in another file that is compiled, but not in a namespace without a name
            found = [d for d in found if not d.path.startswith(OF_KERNELS) or d.path in self.seen_by(path) or (d.path.endswith(".cu") and "" not in d.namespaces)]
        if qualifier:
            return [d for d in found if d.namespaces and qualifier in d.namespaces[-1].split("::")]  # or a member of a class
        if namespaces in HOSTS:
            return [d for d in found if d.namespaces in (namespaces, ()) or d.path.startswith(THE_TABLE)]
        return [d for d in found if d.namespaces not in HOSTS]

    def need(self, uses, namespaces, path):
        waiting = [(use, namespaces, path) for use in uses]
        while waiting:
            (qualifier, name), *where = waiting.pop()
            for declaration in self.visible(qualifier, name, *where):
                if id(declaration) in self.chosen:
                    continue
                self.chosen[id(declaration)] = declaration
                if declaration.kind == "using":  # of device::load: what that is
                    waiting += [((q, n), declaration.namespaces, declaration.path) for q, n in declaration.uses if q]
                else:
                    waiting += [(use, declaration.namespaces, declaration.path) for use in declaration.uses]

    def add_companions(self):
        """What no name leads to: assertions about what was chosen, operators on it, and `using namespace` of it."""
        while True:
            before = len(self.chosen)
            for d in self.all:
                if id(d) in self.chosen:
                    continue
                operator = d.kind == "function" and any(name.startswith("operator") for name in d.names)
                meant = [x for use in d.uses for x in self.visible(*use, d.namespaces, d.path)]
                if (operator or d.kind == "assertion") and meant and all(id(x) in self.chosen for x in meant):
                    self.chosen[id(d)] = d
                if d.kind == "using namespace" and any("::".join(x.namespaces) in d.names for x in self.chosen.values()):
                    self.chosen[id(d)] = d
            if len(self.chosen) == before:
                return

    def of(self, source):
        return [d for d in source.declarations if id(d) in self.chosen]


def call(expression, parameter, result):
    """The function of one parameter that an expression of the table is, as a definition: `result` is "void launch_variant", …"""
    type_of, name = parameter
    if expression.startswith("["):
        opening = matching(expression, 0) + 1
        closing = matching(expression, opening)
        written = re.search(r"(\w+)\s*$", expression[opening + 1 : closing])
        return f"{result}(const {type_of}& {written[1] if written else name}) {expression[closing + 1 :].strip()}"
    back = "" if result.startswith("void") else "return "
    return f"{result}(const {type_of}& {name}) {{ {back}{expression}({name}); }}"


def scratch_of(values, type_of):
    """The function that lists a variant's scratch memory. A launch may need other arrays, and nothing to write in between."""
    if "scratch" not in values:
        return f"host::Arrays scratch_of(const host::{type_of}&) {{ return {{}}; }}"
    return call(plain(values["scratch"]), (f"host::{type_of}", "shape"), "host::Arrays scratch_of")


def initialiser(step, expression):
    """The value of a constant of step.cu, in the place of its name."""
    for declaration in step.sources[step.path].declarations:
        if declaration.kind == "variable" and expression in declaration.names:
            _, found, value = declaration.code.rstrip(";").partition("=")
            return re.sub(r"^with_score_options\((.*)\)$", r"\1", value.strip()) if found else "{}"
    return expression


# ---- the file ----


def written(step, variant, root, device_includes, out):
    """The whole text."""
    values = variant.values
    features = ["scratch"] * ("scratch" in values or step.sparse) + ["sparse"] * step.sparse + ["plan"] * ("plan" in values)
    features += ["attributes"] * step.attributes
    features += ["experts" if ".experts = true" in initialiser(step, values.get("supports", "")) else "plain"]  # of linear layers
    family = preprocessed((root / PARTS / f"{variant.family}.cu").read_text(), features)
    if family.count(THE_STEP) != 1:
        raise UsageError(f"{PARTS}/{variant.family}.cu must have one line {THE_STEP}")
    upper, lower = family.split(THE_STEP)
    parts = Step.__new__(Step)
    parts.root, parts.sources = root, dict(step.sources)
    types, main = (parse(text, f"{PARTS}/{variant.family}.cu") for text in (upper, lower))
    for include in types.includes:
        parts.read(include, features)
    sources = list(parts.sources.values())
    shared = [s for s in sources if s.path.startswith(PARTS)]
    device = [s for s in sources if s.path.startswith("common/device/")]
    kernels = [s for s in sources if s not in shared + device and not step.is_host(s.path)]
    hosts = [s for s in sources if s not in shared + device + kernels]
    for source in device + kernels + hosts:
        for d in source.declarations:
            d.text, d.code = plain(for_both_sides(d, d.text)), plain(for_both_sides(d, d.code))
            if source in hosts:
                d.text, d.code = (without_scores(without_packed(without_fallbacks(text, step, variant))) for text in (d.text, d.code))
                d.uses = uses_of(d.code)
            elif "score" in d.code:
                d.text, d.code = without_scores_of_kernels(d.text), without_scores_of_kernels(d.code)
                d.uses = uses_of(d.code)
            d.uses = {("host" if q in ("run", "problem") else q, n) for q, n in d.uses}
        if any("ScoredShape" in d.names for d in source.declarations):
            source.header = ""  # which explains it
        source.declarations = [d for d in source.declarations if ANY_SHAPE & set(d.names) or not any(shape in d.code for shape in LEFT_OUT_SHAPES)]
        source.declarations = [d for d in source.declarations if not OF_SCORES & set(d.names)]

    type_of = variant.type
    code = [
        f'constexpr const char* variant_name = "{variant.step} {variant.name}";',
        f"const host::{type_of}Support supports = {plain(initialiser(step, values.get('supports', '{}')))};",
        *([scratch_of(values, type_of)] if "scratch" in features else []),
        *[call(plain(values[key]), (f"host::{type_of}Launch", "l"), f"void {key}_variant") for key in ("plan", "launch") if key in values],
    ]
    own = parse("\n".join(["namespace {", *code, "}  // namespace"]), f"{THE_TABLE} of {step.path}")
    ordered = [*device, *kernels, *shared, types, *hosts, own, main]
    selection = Selection(ordered)
    for key in ("plan", "launch", "scratch"):
        function = re.match(r"\w+", values.get(key, ""))
        if function and function[0] not in selection.by_name:
            raise UsageError(f"{step.path}: the .{key} of {variant.name} is {function[0]}, which is not declared there")
    for source in (own, main):
        for d in source.declarations:
            selection.chosen[id(d)] = d
            selection.need(d.uses, d.namespaces, d.path)
    selection.add_companions()
    check_host_names(selection, variant)

    layout, system = Layout(), set()
    for source in ordered:
        chosen = selection.of(source)
        if not chosen:
            continue
        variant.files += [source.path] * (source is not own and source.path not in variant.files)
        system |= set(source.system)
        if source in device + kernels:
            variant.relaxed |= any(STANDARD_CALL.search(d.code) for d in chosen)
        if device_includes and source in device:
            layout.include(source.path)
        else:
            layout.add(source, chosen, source in hosts)
    system |= {"cuda_bf16.h", "cuda_fp16.h", "cuda_runtime.h", *parts.sources["common/device/dialect.h"].system}
    groups = [sorted(name for name in system if name.endswith(".h") == of_cuda) for of_cuda in (True, False)]
    includes = "\n\n".join("\n".join(f"#include <{name}>" for name in group) for group in groups)
    return "\n\n".join([opening(variant, root, out), includes, layout.text()])


def check_host_names(selection, variant):
    """A name of the project's host side that the family's file does not have is an error that says so."""
    for d in selection.chosen.values():
        for qualifier, name in d.uses:
            if qualifier in HOST_NAMESPACES and not any(x.namespaces == (qualifier,) for x in selection.by_name.get(name, [])):
                raise UsageError(f"{d.path} uses {name} of the host's side: {PARTS}/{variant.family}.cu must define {qualifier}::{name}")


class Layout:
    """The parts of the file, one source after another; a namespace stays open as long as the next part is in it, too."""

    def __init__(self):
        self.lines = []
        self.namespaces = ()

    def enter(self, namespaces):
        if namespaces != self.namespaces:
            self.lines += ["", *[f"}}  // namespace {name}".rstrip() for name in reversed(self.namespaces)], ""]
            self.lines += [*[f"namespace {name} {{" if name else "namespace {" for name in namespaces], ""]
            self.namespaces = namespaces

    def include(self, path):
        self.enter(())
        self.lines.append(f'#include "{path}"')

    def add(self, source, chosen, is_host):
        if chosen[0].namespaces != self.namespaces:
            self.enter(())
        if not source.path.startswith(PARTS):
            self.lines += ["", f"// ==== {source.path} ====", ""]
        has_kernel = any(d.is_kernel for d in source.declarations)
        if source.header and not is_host and (not has_kernel or any(d.is_kernel for d in chosen)):
            self.lines += [plain_comments(source.header), ""]
        section, before = "", None
        for d in chosen:
            self.enter(d.namespaces)
            if before is None or d.gap or before.place + 1 != d.place or d.section != section:
                self.lines.append("")
            if d.section and d.section != section:
                self.lines += [d.section, ""]
            leaderless = before is None or (before.place + 1 != d.place and before.lead != d.lead)
            if leaderless and d.text.startswith(d.code) and d.lead:
                self.lines.append(plain_comments(d.lead).rstrip())
            section, before = d.section, d
            self.lines.append(d.text)
        self.lines.append("")

    def text(self):
        self.enter(())
        text = re.sub(r"[ \t]+$", "", "\n".join(self.lines), flags=re.MULTILINE)
        return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def build_line(variant, out):
    capability = variant.values.get("compute_capability", "80")
    only = re.fullmatch(r"(?:run::)?only\((\d+)\)", capability)  # what one device alone can run
    architecture = f"sm_{only[1]}a" if only else f"sm_{capability}"
    relaxed = " --expt-relaxed-constexpr" if variant.relaxed else ""
    return f"nvcc -std=c++20 -O2 -arch={architecture}{relaxed} {out} -o {out.removesuffix('.cu')}"


def version(root):
    cited = re.search(r"^version: (\S+)", (root / "CITATION.cff").read_text(), re.MULTILINE)[1]
    commit = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=10"], cwd=root, capture_output=True, text=True, check=False).stdout.strip()
    return f"{cited}, commit {commit}" if commit else cited


def opening(variant, root, out):
    """The comment at the top."""
    name = Path(out).name
    files = [path for path in variant.files if not path.startswith(PARTS)] + [f"{PARTS}/{variant.family}.cu."]
    files = textwrap.wrap(", ".join(files), WIDTH - 5, break_long_words=False, break_on_hyphens=False)
    idea = literal(variant.values["idea"])
    lines = [
        f"{variant.step}, {variant.name}: {idea}.",
        "",
        f"One file, made by FlashSteps {version(root)}. Of its sources it holds what this variant needs:",
        *[f"  {path}" for path in files],
        "",
        "Build: " + build_line(variant, name) + ("" if "compute_capability" in variant.values else "  (sm_90 on an H100 or H200)"),
        f"Run:   ./{name.removesuffix('.cu')}   (shape, type and seed are flags: a wrong one lists them)",
        "It launches the variant once on random inputs, compares sampled rows with a reference in double precision, times it, and",
        "prints PASS (exit status 0) or FAIL (1).",
        "",
        "Copyright The FlashSteps authors. Licence: Apache 2.0, https://www.apache.org/licenses/LICENSE-2.0",
        "SPDX-License-Identifier: Apache-2.0",
    ]
    return "\n".join(f"// {line}".rstrip() for line in lines)


def steps_of(root):
    """Names of the steps that have variants, of a family that has a file here."""
    table = re.compile(rf"\b({'|'.join(FAMILIES)})Variant>\s+\w+\s*=")
    return sorted(path.parent.name for path in root.glob("steps/*/step.cu") if table.search(path.read_text()))


def find_step(root, number):
    every = sorted(path.parent.name for path in root.glob("steps/*/step.cu"))
    named = [name for name in every if name == number or name.split("_")[0] == number]
    if not named:
        raise UsageError(f"there is no step {number}; there are: {' '.join(steps_of(root))}")
    if named[0] not in steps_of(root):
        raise UsageError(f"{named[0]} has no table of variants with a reference to check them against; there are: {' '.join(steps_of(root))}")
    return Step(root, named[0])


def single(root, number, name, out=None, device_includes=False):
    """The text of a variant's file, and where it goes. Throws UsageError."""
    step = find_step(root, number)
    if name not in step.variants:
        raise UsageError(f"{step.name} has no variant {name or '(none is named)'}; it has: {' '.join(step.variants)}")
    variant = step.variants[name]
    out = Path(out) if out else root / "build" / "single" / f"{variant.number}_{name}.cu"
    return written(step, variant, root, device_includes, str(out)), out, variant


def main():
    parser = argparse.ArgumentParser(description="Writes one variant of a step as one file to take away.")
    parser.add_argument("step", nargs="?", help="05, or 05_flash_v2")
    parser.add_argument("variant", nargs="?", help="as the step's --list names it")
    parser.add_argument("--out", help="default: build/single/STEP_VARIANT.cu")
    parser.add_argument("--list", action="store_true", help="every step and variant")
    parser.add_argument("--device-includes", action="store_true", help="include common/device/ in place of its text, as the tests do for the simulator")
    args = parser.parse_args()
    try:
        if args.list:
            for name in steps_of(ROOT):
                for variant in Step(ROOT, name).variants:
                    print(name, variant)
            return
        if not args.step or not args.variant:
            raise UsageError("which step and which variant? make single STEP=05 VARIANT=tuned; --list names them")
        text, out, variant = single(ROOT, args.step, args.variant, args.out, args.device_includes)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text)
        shown = out.relative_to(Path.cwd()) if out.is_absolute() and out.is_relative_to(Path.cwd()) else out
        print(f"{shown}: {len(text.splitlines())} lines\n{build_line(variant, str(shown))}")
    except (UsageError, ParseError) as error:
        print(f"single: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
