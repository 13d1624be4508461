"""Sends what a problem's own files write or read elsewhere, where an answer could have chosen it.

A given module may open a file whose name is a parameter, or a variable that others can write. The
compiled simulation is text: there the name of such a call is replaced by one in a private folder,
whatever the name would have been. What is read under a name that an answer chose is its own tree
and the work folder: not the harness; under a name that is made while it runs, only what was written
so. A name that stands in the given file itself, in the call or as
the default of the parameter, stays: whoever wrote the problem wrote it. Standard library only; runs
inside the sandbox.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Collection, Mapping

SEALED = "/tmp/rlvr-sealed"
_SHOWN = ("/code/rtl", "/code/verif", "/code/docs", "/code/rundir")
_FOLDERS = ("/code/rundir", "/code/rundir/sim_build")
_CALL = re.compile(r'\s*%vpi_(?:call|func)\S*\s+(\d+)\s+\d+\s+"(\$[^"]+)"')
_NET_CALL = re.compile(r'\S+ \.sfunc\S* (\d+) \d+ "(\$[^"]+)", "(v\d+v[\dv]+)", ([^,;]+)')
_PARAMETER = re.compile(r'\s*(P_\w+) \.param/(?:str|l) "([^"]+)" [^,]*, (?:"(.*)"|\+?C4<([01]+)>)')
_CONSTANT = re.compile(r"(\S+) \.functor BUFT 1, C4<([01]+)>,")
_DIRECT = re.compile(r'(\$\w+)\s*\(\s*"((?:[^"\\\n]|\\.)*)"')
_DEFAULT = re.compile(r'\b(\w+)\s*=\s*"((?:[^"\\\n]|\\.)*)"')
_NO_NAME = re.compile(  # tasks of files that take none, or only look
    r"\$(f(close|flush|eof|error|getc|gets|read|scanf|seek|tell)|rewind|ungetc|s?readmem\w*"
    r"|f(display|write|strobe|monitor)[bho]?|(test|value)\$plusargs|finish_and_return|sdf_annotate)"
)
_READING = re.compile(r'^, "rb?" \{')


def seal(simulation: str, given: Mapping[str, str], harmless: Collection[str]) -> None:
    """Change a compiled simulation so that the calls of given files keep to names of their own."""
    with open(simulation, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        lines = file.readlines()
    files, facts = _files(lines), _Facts(lines)
    calls = []
    for place, line in enumerate(lines):
        call = _call(line)
        text = given.get(files.get(call.file, "")) if call else None
        if call and text is not None and call.task not in harmless:
            calls.append((place, call, text))
    sealed = {
        _private(call.name, facts)
        for _, call, text in calls
        if not _is_own(call, text, facts)
        and (_is_elsewhere(call, facts) if call.reads else not _NO_NAME.fullmatch(call.task))
    }
    for place, call, text in calls:
        # What reads under a name that is sealed finds what was written under it.
        private = _private(call.name, facts)
        takes_name = not _NO_NAME.fullmatch(call.task) or call.reads
        if takes_name and private in sealed and not _is_own(call, text, facts):
            lines[place] = call.with_name(lines[place], private)
    if sealed:
        with contextlib.suppress(FileExistsError):
            os.mkdir(SEALED)
        partial = f"{simulation}.sealed"
        with open(partial, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            file.writelines(lines)
        shutil.copymode(simulation, partial)
        os.replace(partial, simulation)


class _Call:
    """A call of a system task: its file's number, its first argument, and where that stands."""

    def __init__(self, file: int, task: str, line: str, start: int, stop: int, kinds: str) -> None:
        self.file, self.task = file, task
        self.name, self.start, self.stop = line[start:stop], start, stop
        self.kinds = kinds  # of a call in a continuous assignment: the widths of its arguments
        is_open = task == "$fopen" and bool(_READING.match(line[stop:]))
        self.reads = is_open or bool(re.fullmatch(r"\$readmem\w*", task))

    def with_name(self, line: str, name: str) -> str:
        """The line with another first argument; a constant before it where that must be a net."""
        if not self.kinds:
            return f'{line[: self.start]}"{name}"{line[self.stop :]}'
        bits = "".join(f"{byte:08b}" for byte in name.encode())
        net = f"L_0x5ea1{hashlib.sha256(line.encode()).hexdigest()[:12]}"
        constant = f"{net} .functor BUFT 1, C4<{bits}>, C4<0>, C4<0>, C4<0>;\n"
        kinds = re.sub(r"^(v\d+)v\d+", rf"\1v{len(bits)}", self.kinds)
        call = line[: self.start] + net + line[self.stop :]
        return constant + call.replace(f'"{self.kinds}"', f'"{kinds}"', 1)


def _call(line: str) -> _Call | None:
    """The call in a line that has an argument, None where there is none."""
    if found := _NET_CALL.match(line):
        return _Call(int(found[1]), found[2], line, found.start(4), found.end(4), found[3])
    found = _CALL.match(line)
    start = line.find(", ", found.end()) + 2 if found else 0
    if not found or start < 2:
        return None
    return _Call(int(found[1]), found[2], line, start, _argument_end(line, start), "")


class _Facts:
    """What constants of a compiled simulation say: parameters with their names, and nets."""

    def __init__(self, lines: list[str]) -> None:
        self.parameters: dict[str, tuple[str, str]] = {}
        self.nets: dict[str, str] = {}
        for line in lines:
            if found := _PARAMETER.match(line):
                value = _decoded(found[4]) if found[4] else found[3].replace(r"\000", "")
                self.parameters[found[1]] = (found[2], value)
            elif found := _CONSTANT.match(line):
                self.nets[found[1]] = _decoded(found[2])


def _files(lines: list[str]) -> dict[int, str]:
    """The names of source files by their number: the end of a compiled simulation."""
    start = max((n for n, line in enumerate(lines) if line.startswith(":file_names")), default=0)
    names = [line.strip().rstrip(";").strip('"') for line in lines[start + 1 :]]
    return dict(enumerate(names))


def _decoded(bits: str) -> str:
    value = int(bits, 2)
    return value.to_bytes((len(bits) + 7) // 8, "big").lstrip(b"\0").decode(errors="replace")


def _is_own(call: _Call, text: str, facts: _Facts) -> bool:
    """Whether the given file itself says so: in a call of the task, or as a parameter's default."""
    if call.name in facts.parameters:
        return facts.parameters[call.name] in _DEFAULT.findall(text)
    if call.name in facts.nets:  # the parameter's name is lost there
        known = facts.nets[call.name]
        return known in {n for _, n in (*_DIRECT.findall(text), *_DEFAULT.findall(text))}
    return call.name[:1] == '"' and (call.task, call.name[1:-1]) in _DIRECT.findall(text)


def _private(name: str, facts: _Facts) -> str:
    """A place in the private folder: the same for the same name where it is known."""
    _, known = facts.parameters.get(name, ("", facts.nets.get(name, name)))
    return f"{SEALED}/{hashlib.sha256(known.strip(chr(34)).encode()).hexdigest()[:16]}"


def _is_elsewhere(call: _Call, facts: _Facts) -> bool:
    """Whether a call reads what no answer is shown: by its name, or as that is not known yet."""
    _, known = facts.parameters.get(call.name, ("", facts.nets.get(call.name, "")))
    known = known or (call.name[1:-1] if call.name[:1] == '"' else "")
    if not known:
        return True
    paths = [os.path.realpath(os.path.join(place, known)) for place in (*_FOLDERS, os.getcwd())]
    is_hidden = [not f"{path}/".startswith(tuple(f"{p}/" for p in _SHOWN)) for path in paths]
    exist = [known[:1] == "/" or os.path.lexists(path) for path in paths]
    return any(a and b for a, b in zip(is_hidden, exist, strict=True))


def _argument_end(line: str, start: int) -> int:
    """Where the argument that begins at a place ends."""
    if line[start] == '"':
        found = re.compile(r'"(?:[^"\\]|\\.)*"').match(line, start)
        return found.end() if found else len(line)
    depth = 0
    for place in range(start, len(line)):
        sign = line[place]
        depth += (sign == "<") - (sign == ">")
        if not depth and (sign == "," or line.startswith(" {", place)):
            return place
    return len(line)
