"""Compiles another source in the place of one of a finished build's, and links a program with it: by the build's own commands."""

import contextlib
import fcntl
import json
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class UsageError(Exception):
    """What cannot be done as asked; exit status 2."""


def shown(path):
    """A path from the repository's root where that is shorter."""
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


@contextlib.contextmanager
def alone_in(build):
    """Waits until no other script builds in this folder: two that do would compile the same objects at once."""
    with open(build / "one_at_a_time.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def compiler_words(command):
    """Of a build's command: the compiler and what it is given, without a program such as ccache that starts it."""
    words = shlex.split(command)
    return words[next(i for i, word in enumerate(words) if word.startswith("-")) - 1 :]


def object_of(words):
    return words[words.index("-o") + 1]


def read_deps(text):
    """What `ninja -t deps` prints: {object: [file, …]}; None for an object of which ninja knows nothing that still holds."""
    deps, files = {}, []
    for line in text.splitlines():
        if line.startswith("    "):
            files.append(line.strip())
        elif line:
            name, _, state = line.rpartition(": ")
            files = []
            deps[name] = files if state.endswith("(VALID)") else None
    return deps


class Rebuild:
    """One source of a build, and a program that it is part of, which is built first if it is missing or old."""

    def __init__(self, build, source, program):
        self.build, self.source, self.program = build, source, program
        if not (build / "compile_commands.json").exists():
            raise UsageError(f"{shown(build)} is no finished build: run make sim first")
        self._ninja(program)
        link = shlex.split(self._ninja("-t", "commands", program).splitlines()[-1])
        self.link_words = [word for word in link if word not in (":", "&&")]
        commands = json.loads((build / "compile_commands.json").read_text())
        compiled = [compiler_words(entry["command"]) for entry in commands if Path(entry["file"]).resolve() == source.resolve()]
        if not compiled:
            raise UsageError(f"{shown(build)} does not compile {shown(source)} of this tree")
        fitting = [words for words in compiled if object_of(words) in self.link_words]  # several programs may have the source
        if len(fitting) != 1 or program not in self.link_words:
            raise UsageError(f"the command that links {program} is not understood: {shlex.join(link)}")
        (self.compile_words,) = fitting
        self.object = object_of(self.compile_words)

    def read_files(self):
        """Of each source that the program is linked from, the files that its compiler read, itself among them: {source: {path, …}}.
        None in place of files that ninja does not know."""
        commands = json.loads((self.build / "compile_commands.json").read_text())
        objects = {object_of(shlex.split(entry["command"])): Path(entry["file"]) for entry in commands}
        linked = {name: source for name, source in objects.items() if name in self.link_words}
        deps = read_deps(self._ninja("-t", "deps", *linked))
        resolved = lambda files: {(self.build / file).resolve() for file in files}
        return {source.resolve(): resolved([source, *deps[name]]) if deps.get(name) else None for name, source in linked.items()}

    def _ninja(self, *arguments):
        with alone_in(self.build):
            done = subprocess.run(["ninja", "-C", self.build, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise UsageError(f"ninja {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def compile(self, source, output, *flags, last=(), is_header=False):
        """The first error; None if there is none. `flags` come before the build's own, `last` behind them. Warnings are no errors here:
        what only looks wrong shall meet the simulator. A header is precompiled."""
        replaced = {self.object: str(output), self.compile_words[-1]: str(source), "-Werror": "-w"}
        if is_header:
            assert "-xc++" in self.compile_words
            replaced["-xc++"] = "-xc++-header"
        return self._run([self.compile_words[0], *flags, *(replaced.get(word, word) for word in self.compile_words[1:]), *last])

    def link(self, compiled, program, others=None):
        """The same; others: {another object of the build: what takes its place}."""
        replaced = {self.object: str(compiled), self.program: str(program), **(others or {})}
        return self._run([replaced.get(word, word) for word in self.link_words])

    def _run(self, words):
        done = subprocess.run(words, cwd=self.build, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode == 0:
            return None
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        return errors[0] if errors else f"exit status {done.returncode}"
