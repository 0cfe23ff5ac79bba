"""The declarations of a C++ source file as nvcc sees it: their text with the comments above, the names they declare and those they use.

This is no compiler. It reads what this project writes: formatted by clang-format, no macros in kernel files, one #if (the simulator's).
"""

import bisect
import functools
import re
from dataclasses import dataclass, field, replace

TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<directive>^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*)
      | (?P<string>"(?:\\.|[^"\\])*")
      | (?P<number>\.?\d(?:[eEpP][+-]|[\w.']|')*)
      | (?P<char>'(?:\\.|[^'\\])+')
      | (?P<name>[A-Za-z_]\w*)
      | (?P<space>\s+)
      | (?P<mark>::|->|\.\.\.|.)""",
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
OPENING, CLOSING = "([{", ")]}"
CLASS_KEYS = {"struct", "class", "union", "enum"}
WORDS_BEFORE_A_VALUE = {"return", "else", "case", "sizeof", "new", "delete", "do", "throw", "goto", "typename", "class", "struct", "using", "namespace", "operator", "template", "const", "constexpr"}


class ParseError(Exception):
    """What this module does not understand."""


@dataclass
class Token:
    kind: str
    text: str
    start: int

    @property
    def end(self):
        return self.start + len(self.text)


def tokens_of(text):
    return [Token(match.lastgroup, match.group(), match.start()) for match in TOKEN.finditer(text)]


def code_of(text):
    """The tokens without comments, directives and space."""
    return [token for token in tokens_of(text) if token.kind not in ("comment", "directive", "space")]


def opens_template(tokens, index):
    """Is this < a bracket? clang-format puts spaces around the operator."""
    token = tokens[index]
    before = tokens[index - 1] if index else None
    return token.text == "<" and before is not None and (before.text == "template" or (before.kind == "name" and before.end == token.start))


def split(text, separator=","):
    """The parts of a list, trimmed: commas within brackets of any kind separate nothing."""
    parts, depth, angles, start = [], 0, 0, 0
    tokens = code_of(text)
    for index, token in enumerate(tokens):
        if token.kind != "mark":
            continue
        if token.text in OPENING:
            depth += 1
        elif token.text in CLOSING:
            depth -= 1
        elif depth == 0 and opens_template(tokens, index):
            angles += 1
        elif depth == 0 and token.text == ">" and angles:
            angles -= 1
        elif token.text == separator and depth == angles == 0:
            parts.append(text[start : token.start].strip())
            start = token.end
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def matching(text, start):
    """Where the bracket that opens at `start` is closed."""
    tokens = [token for token in code_of(text) if token.start >= start]
    depth = 0
    for index, token in enumerate(tokens):
        if text[start] == "<":
            depth += opens_template(tokens, index) or index == 0
            depth -= token.text == ">"
        else:
            depth += token.kind == "mark" and token.text in OPENING
            depth -= token.kind == "mark" and token.text in CLOSING
        if depth == 0:
            return token.start
    raise ParseError(f"a bracket is not closed: {text[start : start + 60]}")


def substituted(text, values):
    """The text with each of these names replaced; members and qualified names stay, and `name...` becomes the whole list."""
    out, last, tokens = [], 0, tokens_of(text)
    for index, token in enumerate(tokens):
        before = tokens[index - 1].text if index else ""
        if token.kind != "name" or token.text not in values or before in (".", "->", "::"):
            continue
        out += [text[last : token.start], values[token.text]]
        last = token.end
        if index + 1 < len(tokens) and tokens[index + 1].text == "...":
            last = tokens[index + 1].end
    return "".join([*out, text[last:]])


@dataclass
class Declaration:
    text: str  # with the comments above it and behind it
    code: str  # without them
    namespaces: tuple  # "" for one without a name
    path: str
    place: int  # in the order of its file
    gap: bool  # an empty line stands before it
    lead: str  # the comment above it, or above the group of lines without a gap that it is part of
    section: str  # the comment `// ---- … ----` under which it stands
    kind: str  # using namespace, using, class, assertion, function, variable, macro
    names: set = field(default_factory=set)
    uses: set = field(default_factory=set)  # (qualifier or "", name)

    @property
    def is_kernel(self):
        return "__global__" in self.code


@dataclass
class Source:
    path: str
    header: str  # the comment at its top
    system: list  # what it includes in <>
    includes: list  # and in ""
    declarations: list


def preprocessed(text, features=()):
    """As nvcc sees it: without the simulator's half. `// [if x]` … `// [end]` stays if x is among the features."""
    lines, keep = [], []
    for line in text.split("\n"):
        word = line.strip()
        if feature := re.fullmatch(r"// \[if (\w+)\]", word):
            keep.append(feature[1] in features)
        elif word == "// [end]":
            keep.pop()
        elif re.fullmatch(r"#\s*if(def FLASHSTEPS_SIM| defined\(FLASHSTEPS_SIM\))", word):
            keep.append(False)
        elif re.match(r"#\s*(if|el)", word) and not word.startswith("#else"):
            raise ParseError(f"a condition that is not the simulator's: {word}")
        elif re.match(r"#\s*else\b", word):
            keep[-1] = not keep[-1]
        elif re.match(r"#\s*endif\b", word):
            keep.pop()
        elif all(keep) and not re.fullmatch(r"// \[/?doc: .*\]", word):
            lines.append(line)
    return "\n".join(lines)


def parse(text, path):
    """The source file of this text, which preprocessed() returned. It is the caller's own, to change."""
    source = parsed(text, path)
    return replace(source, declarations=[replace(declaration) for declaration in source.declarations])


@functools.cache  # a header is read again for every variant
def parsed(text, path):
    tokens = tokens_of(text)
    places = [i for i, token in enumerate(tokens) if token.kind not in ("comment", "space", "directive")]
    all_code = [tokens[i] for i in places]
    source = Source(path, "", [], [], [])
    namespaces, comments, section = [], [], ""
    header_is_open = True
    last_end = 0  # of the last declaration, or of what else is no part of the next one
    index = 0

    def take_header():
        nonlocal header_is_open, comments
        if header_is_open and comments:
            source.header = text[comments[0].start : comments[-1].end]
            comments = []
        header_is_open = False

    def add(start, end, kind, names, code_start):
        nonlocal last_end, comments
        uses = uses_of(text[code_start:end]) if kind != "macro" else set()
        gap = "\n\n" in text[last_end:start]
        lead = text[start:code_start]
        if not lead and not gap and source.declarations:
            lead = source.declarations[-1].lead
        place = len(source.declarations)
        source.declarations.append(Declaration(text[start:end], text[code_start:end], tuple(namespaces), path, place, gap, lead, section, kind, names, uses))
        last_end, comments = end, []

    while index < len(tokens):
        token = tokens[index]
        if token.kind == "space":
            index += 1
        elif token.kind == "comment":
            if re.match(r"// ---- .* ----", token.text):
                section, comments, last_end = token.text, [], token.end
            else:
                comments.append(token)
            index += 1
        elif token.kind == "directive":
            if match := re.match(r'#\s*include\s*([<"])([^>"]+)', token.text):
                take_header()
                (source.system if match[1] == "<" else source.includes).append(match[2])
            elif match := re.match(r"#\s*define\s+(\w+)", token.text):
                start = comments[0].start if comments else token.start
                add(start, token.end, "macro", {match[1]}, token.start)
            elif re.match(r"#\s*pragma once", token.text):
                take_header()
            else:
                raise ParseError(f"{path}: {token.text}")
            last_end = token.end
            index += 1
        elif token.text == "namespace":
            take_header()
            end = next(i for i in range(index, len(tokens)) if tokens[i].text in ("{", "="))
            if tokens[end].text == "=":
                raise ParseError(f"{path}: a namespace's other name: {text[token.start : tokens[end].end]}")
            namespaces.append("::".join(t.text for t in tokens[index + 1 : end] if t.kind == "name"))
            last_end, comments, index = tokens[end].end, [], end + 1
        elif token.text == "}":
            namespaces.pop()
            section, comments, index = "", [], index + 1
            if index < len(tokens) and tokens[index].kind == "space" and "\n" not in tokens[index].text:  # }  // namespace
                index += 2
            last_end = tokens[index - 1].end
        else:
            take_header()
            start = comments[0].start if comments else token.start
            end = declaration_end(tokens, places, all_code, index)
            kind, names = declared(text[token.start : tokens[end - 1].end])
            if end + 1 < len(tokens) and tokens[end + 1].kind == "comment" and tokens[end].kind == "space" and "\n" not in tokens[end].text:
                add(start, tokens[end + 1].end, kind, names, token.start)
                end += 2
            else:
                add(start, tokens[end - 1].end, kind, names, token.start)
            index = end
    if namespaces:
        raise ParseError(f"{path}: a namespace is not closed")
    return source


def declaration_end(tokens, places, all_code, index):
    """The index behind the last token of the declaration that begins here. all_code: the tokens that are code, which stand at these places."""
    code = without_template_header(all_code[bisect.bisect_left(places, index) :])
    first = len(places) - len(code)
    until_semicolon = code[0].text in CLASS_KEYS or code[0].text in ("using", "typedef")
    depth = 0
    for n, token in enumerate(code):
        if token.kind != "mark":
            continue
        depth += token.text in OPENING
        depth -= token.text in CLOSING
        if depth == 0 and token.text == "=":
            until_semicolon = True
        if depth == 0 and (token.text == ";" or (token.text == "}" and not until_semicolon and (n + 1 == len(code) or code[n + 1].text != ";"))):
            return places[first + n] + 1
    raise ParseError(f"a declaration does not end: {''.join(t.text for t in tokens[index : index + 30])}")


def without_template_header(code):
    while code and code[0].text == "template":
        depth = 0
        for i, token in enumerate(code[1:], start=1):
            depth += opens_template(code, i) or (i == 1 and token.text == "<")
            depth -= token.text == ">" and not (i and code[i - 1].text == "-")
            if depth == 0:
                code = code[i + 1 :]
                break
        else:
            return []
    return code


def without_attributes(code):
    """Without alignas(…), __launch_bounds__(…), decltype(…) and [[…]]."""
    out, i = [], 0
    while i < len(code):
        if code[i].text in ("alignas", "__launch_bounds__", "__align__", "__attribute__", "decltype", "requires", "noexcept") and i + 1 < len(code) and code[i + 1].text == "(":
            i = closing_index(code, i + 1) + 1
        elif code[i].text == "[" and i + 1 < len(code) and code[i + 1].text == "[":
            i = closing_index(code, i) + 1
        else:
            out.append(code[i])
            i += 1
    return out


def closing_index(code, opening):
    depth = 0
    for i in range(opening, len(code)):
        depth += code[i].text in OPENING and code[i].kind == "mark"
        depth -= code[i].text in CLOSING and code[i].kind == "mark"
        if depth == 0:
            return i
    raise ParseError("a bracket is not closed")


def declared(text):
    """(kind, names) of a declaration."""
    code = without_attributes(without_template_header(code_of(text)))
    texts = [token.text for token in code]
    first = texts[0]
    if first == "static_assert":
        return "assertion", set()
    if first == "using" and texts[1] == "namespace":
        return "using namespace", {"::".join(t for t in texts[2:] if t not in ("::", ";"))}
    if first == "using":
        if "=" in texts:
            return "class", {texts[1]}
        return "using", {texts[i - 1] for i, t in enumerate(texts) if t in (",", ";")}
    if first == "typedef":
        return "class", {texts[-2]}
    if first in CLASS_KEYS:
        end = next(i for i, t in enumerate(texts) if t in ("{", ":", ";", "<"))
        name = [t for t in texts[1:end] if t not in ("class", "struct", "final")][-1]
        enumerators = set()
        if first == "enum" and texts[1] not in ("class", "struct") and "{" in texts:
            enumerators = {texts[i] for i in range(len(texts) - 1) if code[i].kind == "name" and texts[i + 1] in (",", "=", "}")}
        return "class", {name} | enumerators
    angles = 0
    for i, token in enumerate(code):
        if token.text == "operator":
            return "function", {"operator" + texts[i + 1]}
        if opens_template(code, i):
            angles += 1
        elif token.text == ">" and angles:
            angles -= 1
        elif angles == 0 and token.text == "(":
            if texts[i + 1] == "*":
                return "variable", {texts[i + 2]}
            return "function", {texts[i - 3] if i > 2 and texts[i - 2] == "::" else texts[i - 1]}
        elif angles == 0 and token.text in ("=", "{", ";", "["):
            name = i - 1
            if texts[name] == ">":  # of a specialisation
                name = next(j for j in range(i) if opens_template(code, j)) - 1
            more, depth = set(), 0
            for j in range(i, len(code)):
                depth += texts[j] in OPENING
                depth -= texts[j] in CLOSING
                if depth == 0 and texts[j] == "," and code[j + 1].kind == "name" and texts[j + 2] in ("=", ",", ";", "[", "{"):
                    more.add(texts[j + 1])
            return "variable", {texts[name]} | more
    raise ParseError(f"what does this declare? {text[:100]}")


@functools.cache
def uses_of(text):
    """(qualifier or "", name) of each name that is not a member and not a local variable's."""
    code = code_of(text)
    uses = set()
    local = set()
    for i, token in enumerate(code):
        before = code[i - 1] if i else None
        after = code[i + 1].text if i + 1 < len(code) else ""
        if token.kind != "name" or (before is not None and before.text in (".", "->")):
            continue
        if before is not None and before.text == "::" and i > 1:
            uses.add((code[i - 2].text, token.text))
        else:
            uses.add(("", token.text))
        if declares_local(code, i, after):
            local.add(token.text)
    return {(qualifier, name) for qualifier, name in uses if qualifier or name not in local}


def declares_local(code, i, after):
    """Does a type stand before this name? clang-format writes `T& x` for a declaration and `a & b` for an operation."""
    if i == 0 or after not in ("=", ";", ",", ")", "{", "[", ":"):
        return False
    before = code[i - 1]
    if before.kind == "name":
        return before.text not in WORDS_BEFORE_A_VALUE
    if before.text == "," and after == "=":
        return True
    return before.text in ("&", "*", ">") and i > 1 and code[i - 2].end == before.start and before.end < code[i].start
