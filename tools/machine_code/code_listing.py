"""What the readers of machine code share: the tools, the names of functions, places in the source, loops."""

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Missing(Exception):
    """Something that must be there is not: a tool, a build, a line that this script can read. Ends with status 2."""


def find_tool(name):
    """The path of a program: on PATH, in the CUDA toolkit, or in NVIDIA's packages from PyPI (requirements.txt)."""
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = [Path(toolkit) / "bin" for toolkit in toolkits if toolkit]
    folders += sorted(ROOT.glob(".venv/lib/python3*/site-packages/nvidia/*/bin"))
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(map(str, folders)))
    if found is None:
        raise Missing(f"{name} is neither on PATH, nor in a CUDA toolkit, nor in .venv")
    return found


def output_of(tool, *arguments, **options):
    """What a program prints."""
    command = [find_tool(tool), *map(str, arguments)]
    english = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=english, check=False, **options)
    if done.returncode != 0:
        raise Missing(f"{tool} failed with status {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


# ---- names ----


def demangled(names):
    """{mangled: as written in C++}"""
    names = list(names)
    return dict(zip(names, output_of("c++filt", input="\n".join(names) + "\n").splitlines()))


def function_name(declaration):
    """ "void ns::kernel<64>(float*)" as "ns::kernel<64>"."""
    text = declaration.replace("(anonymous namespace)", "{anonymous}")
    depth = start = 0
    for at, letter in enumerate(text):
        if letter in "<{":
            depth += 1
        elif letter in ">}":
            depth -= 1
        elif depth == 0 and letter == " ":
            start = at + 1  # what stood before was the return type
        elif depth == 0 and letter == "(":
            text = text[:at]
            break
    return text[start:].replace("{anonymous}", "(anonymous namespace)")


def base_name(name):
    """ "ns::kernel<64>" as "kernel"."""
    return name.split("<")[0].split("::")[-1]


# ---- places ----


@functools.cache
def from_root(path):
    """A path as the repository names it, also one through a symbolic link to it; one that lies elsewhere stays absolute."""
    path = os.path.normpath(path)
    inside = next((name for name in (path, os.path.realpath(path)) if name.startswith(f"{ROOT}/")), None)
    return os.path.relpath(inside, ROOT) if inside else path


@functools.cache
def is_helper(file):
    """Code that is the same for every kernel. The simulator's reports have the same rule (common/simt/symbols.cpp): of the folders in
    common/device/, which are named after the step whose kernels they are from, only ptx/ is."""
    return file.startswith(("common/device/ptx/", "common/simt/", ".venv/", "/")) or bool(re.fullmatch(r"common/device/[^/]+", file))


def places_of(frames):
    """The kernel's line, as "file:line", and the lines that call the function it stands in, innermost first. Frames are (file, line),
    in the same order: where helpers were inlined, the line that uses them counts."""
    own = [n for n, (file, _) in enumerate(frames) if not is_helper(file)]
    return [f"{file}:{line}" for file, line in (frames[own[0] :] if own else frames[-1:] or [("unknown place", 0)])]


def place_of(frames):
    """The kernel's line."""
    return places_of(frames)[0]


def in_source_order(place):
    """A key to sort by."""
    file, _, line = place.rpartition(":")
    return file, int(line)


# ---- loops ----


def components(nodes, successors):
    """The strongly connected components of the graph that `nodes` span (Tarjan's algorithm, without recursion)."""
    nodes = set(nodes)
    index, low, stack, on_stack, found = {}, {}, [], set(), []
    for root in nodes:
        work = [(root, iter(successors.get(root, ())))] if root not in index else []
        while work:
            node, rest = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
            for next_node in rest:
                if next_node not in nodes:
                    continue
                if next_node not in index:
                    work.append((next_node, iter(successors.get(next_node, ()))))
                    break
                if next_node in on_stack:
                    low[node] = min(low[node], index[next_node])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    cut = stack.index(node)
                    found.append(set(stack[cut:]))
                    on_stack.difference_update(stack[cut:])
                    del stack[cut:]
    return found


def loops_of(successors):
    """{node: the headers of the loops around it, outermost first}. A loop is a component of the graph; the loops inside it are
    what remains of it without the edges to its header, the node through which it is entered."""
    nests = {node: () for node in successors}

    def descend(nodes, edges):
        for component in components(nodes, edges):
            inside = {node: [n for n in edges.get(node, ()) if n in component] for node in component}
            if not any(inside.values()):
                continue  # a single node that does not jump to itself
            entered = {n for node in successors if node not in component for n in successors[node] if n in component}
            header = min(entered or component)
            for node in component:
                nests[node] += (header,)
            descend(component, {node: [n for n in inside[node] if n != header] for node in component})

    descend(set(successors), successors)
    return nests
