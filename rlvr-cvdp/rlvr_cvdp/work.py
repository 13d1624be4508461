"""
What an answer did, before its tests: is its target module there, is it new, has it its ports?

Shaped reward is paid for these. The compiler itself expands macros and conditions and lists the
ports, so that a module that no compiler sees counts for nothing; whether an answer differs from
the given files is asked of its tokens and of the compiled simulation, both without names.
"""

from __future__ import annotations

import functools
import re
import secrets
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath

from attrs import evolve, frozen

from rlvr_cvdp.compiled import Ports, ports_of, same_simulation
from rlvr_cvdp.ports import PortsError, header_of
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.proof import simulated
from rlvr_cvdp.results.plain import read_plain
from rlvr_cvdp.sandbox import Limits, Slot
from rlvr_cvdp.tree import write_tree
from rlvr_cvdp.verilog import KEYWORDS, code, module_names

_CPU_S = 10.0
_HDL = (".v", ".sv")
_DRIVEN = re.compile(r"\bdut\.(\w+)\.(?:value|setimmediatevalue)\b\s*(?:=(?!=)|\()")
_UNIT = re.compile(r"\b(?:module|interface|package|program|class|primitive|function|typedef)\b")


@frozen(kw_only=True)
class Work:
    """
    What an answer did; the defaults are those of an answer that nothing is known against.

    Attributes:
        why: What it did not do, in words; "" where nothing is missing.
        is_there: Each module that it must define is in it.
        differs: It is not the given files again.
        has_names: Its text names all the ports that it needs.
        has_ports: Its top module, elaborated, has them, with their directions and widths.
        is_stub: No output depends on an input; None where yosys could not tell.
    """

    why: str = ""
    is_there: bool = True
    differs: bool = True
    has_names: bool = True
    has_ports: bool = True
    is_stub: bool | None = None

    @property
    def counts(self) -> bool:
        """Whether any stage counts."""
        return self.is_there and self.differs

    @property
    def may_parse(self) -> bool:
        """Whether the stage of the syntax may count."""
        return self.counts and self.has_names

    @property
    def may_compile(self) -> bool:
        """Whether the stage of the compilation may count."""
        return self.may_parse and self.has_ports


async def look_at_work(
    problem: CvdpProblem, files: Mapping[str, str], *, slot: Slot, limits: Limits
) -> Work:
    """
    What an answer did; its tree lies in the slot, and lies there unchanged afterwards.

    Raises:
        VerifierError: The sandbox could not run.
    """
    texts = await _expanded(files, slot, limits)
    why = _missing(problem, files, texts)
    if why:
        return Work(why=why, is_there=False, has_names=False, has_ports=False)
    if all(_is_given(problem, path, text, texts.get(path, text)) for path, text in files.items()):
        return _given_again()
    sources, top = simulated(problem)
    names = {token.text for text in texts.values() for token in code(text)}
    if not top or not any(top in module_names(text) for text in texts.values()):
        return Work()
    wanted = await _wanted(problem, top, slot, limits, files)
    missing = sorted(set(wanted) - names)
    if missing:
        why = f"it does not name the port {missing[0]}"
        return Work(why=why, has_names=False, has_ports=False)
    compiled = await _compile(sources, top, slot, limits)
    if not compiled:
        return Work()
    given = await _given_compiled(problem, sources, top, slot, limits, files)
    if given and same_simulation(given, compiled):
        return _given_again()
    found = ports_of(compiled, top)
    for name, (direction, width) in wanted.items():
        has = found.get(name)
        if has is None or has[0] != direction or (width and has[1] != width):
            why = f"its module {top} has not the port {direction} {name}"
            return Work(why=f"{why} of {width} bits" if width else why, has_ports=False)
    return Work(is_stub=await _is_stub(sources, top, slot, limits))


def _given_again() -> Work:
    return Work(why="it is the given design again", differs=False)


async def _expanded(files: Mapping[str, str], slot: Slot, limits: Limits) -> dict[str, str]:
    """The files after the preprocessor; as they are where it fails, or where they are no HDL."""
    paths = [path for path in files if path.endswith(_HDL)]
    texts = dict(files)
    if not paths:
        return texts
    folders = sorted({f"/code/{PurePosixPath(path).parent}" for path in files} | {"/code/rtl"})
    preprocess = ["/rlvr/real/iverilog", "-g2012", "-E", "-o", "/rlvr/out/expanded"]
    preprocess += [f"-I{folder}" for folder in folders]
    # Marks between the files, which an answer cannot foresee: macros go from file to file.
    mark = f"rlvr_{secrets.token_hex(8)}"
    (slot.folder / "tree" / "src" / f"{mark}.v").write_text(f"\n{mark}\n", encoding="utf-8")
    words = [word for path in paths for word in (f"/src/{mark}.v", f"/code/{path}")]
    is_done = await _runs([*preprocess, *words], slot, limits)
    (slot.folder / "tree" / "src" / f"{mark}.v").unlink()
    expanded = read_plain(slot.folder / "out" / "expanded").split(mark)[1:] if is_done else []
    found = zip(paths, expanded, strict=True) if len(expanded) == len(paths) else ()
    return {**texts, **dict(found)}


def _missing(problem: CvdpProblem, files: Mapping[str, str], texts: Mapping[str, str]) -> str:
    """What of an answer's targets is not there, "" for nothing."""
    given = {**problem.context, **problem.reference}
    absent = [t for t in problem.targets if t not in files and t not in problem.context]
    if absent:
        return f"the file {absent[0]} is not in it"
    defined = {name for text in texts.values() for name in module_names(text)}
    for path, text in texts.items():
        name = _main_module(problem, path, given.get(path, ""))
        if name and name not in defined:
            return f"the module {name} is not in it"
        if path.endswith((*_HDL, ".vh", ".svh")):
            words = {token.text for token in code(text)}
            is_header = path.endswith((".vh", ".svh"))
            if not words or not (is_header or _UNIT.search(" ".join(words))):
                return f"the file {path} defines nothing"
        elif not text.strip():
            return f"the file {path} is empty"
    return ""


def _main_module(problem: CvdpProblem, path: str, given: str) -> str:
    """The module that a file must define, "" where nothing says so."""
    if not path.endswith(_HDL):
        return ""
    _, top = simulated(problem)
    stem, names = PurePosixPath(path).stem, module_names(given)
    for name in (top, stem):
        if name in names:
            return name
    if names:
        return names[0]
    others = {**problem.context, **problem.harness}
    elsewhere = {
        name
        for other, text in others.items()
        if other not in problem.targets and other.endswith(_HDL)
        for name in module_names(text)
    }
    hdl = [target for target in problem.targets if target.endswith(_HDL)]
    return top if top and top not in elsewhere and (len(hdl) == 1 or stem == top) else ""


def _is_given(problem: CvdpProblem, path: str, raw: str, expanded: str) -> bool:
    """Whether a file is the given one, but for blanks, comments, attributes and names."""
    given = problem.context.get(path)
    if given is None:
        return False
    same = _shape(given)
    return same in (_shape(raw), _shape(expanded))


@functools.lru_cache(maxsize=512)
def _shape(text: str) -> tuple[str, ...]:
    numbers: dict[str, str] = {}
    words = []
    for token in code(text):
        if token.kind in ("name", "escaped") and token.text not in KEYWORDS:
            words.append(numbers.setdefault(token.text.removeprefix("\\"), f"#{len(numbers)}"))
        elif not (token.text == ";" and words[-1:] == [";"]):
            words.append(token.text)
    return tuple(words)


async def _wanted(
    problem: CvdpProblem, top: str, slot: Slot, limits: Limits, files: Mapping[str, str]
) -> Ports:
    """
    The ports that the top module needs: name to direction and width (0: any).

    Those of the reference where the data set has one; of a module header in the request; of the
    given module, where the harness names them; or inputs that the harness's tests drive and the
    request names.
    """
    sources, _ = simulated(problem)
    if problem.reference:
        text = await _compiled_of(problem, problem.reference, sources, top, slot, limits, files)
        return ports_of(text, top)
    asked = _header_ports(problem.prompt, top)
    if asked:
        return asked
    harness = "\n".join(text for path, text in problem.harness.items() if "compose" not in path)
    text = await _given_compiled(problem, sources, top, slot, limits, files)
    if text:
        named = set(re.findall(r"\w+", harness))
        asks = set(re.findall(r"\w+", problem.prompt))
        return {
            name: (direction, 0 if name in asks else width)
            for name, (direction, width) in ports_of(text, top).items()
            if name in named
        }
    words: Collection[str] = set(re.findall(r"\w+", problem.prompt))
    return {name: ("input", 0) for name in _DRIVEN.findall(harness) if name in words}


def _header_ports(prompt: str, top: str) -> Ports:
    try:
        header = header_of(prompt, top)
    except (PortsError, StopIteration):
        return {}
    return {port.name: (port.direction, 0) for port in header.ports}


async def _given_compiled(
    problem: CvdpProblem, sources: list[str], top: str, slot: Slot, limits: Limits,
    files: Mapping[str, str],
) -> str:  # fmt: skip
    given = {path: problem.context[path] for path in problem.targets if path in problem.context}
    if not given:
        return ""
    return await _compiled_of(problem, given, sources, top, slot, limits, files)


_known: dict[tuple[str, str], str] = {}
"""Compiled given designs and references, by the problem's digest and what they are."""


async def _compiled_of(
    problem: CvdpProblem, design: Mapping[str, str], sources: list[str], top: str, slot: Slot,
    limits: Limits, files: Mapping[str, str],
) -> str:  # fmt: skip
    """The compiled form of another design in the answer's place, which is put back."""
    key = (problem.digest(), "given" if design != problem.reference else "reference")
    if key not in _known:
        write_tree(slot.folder, problem, design)
        _known[key] = await _compile(sources, top, slot, limits)
        for path in design:
            (slot.folder / "tree" / path).unlink(missing_ok=True)
        write_tree(slot.folder, problem, files)
    return _known[key]


async def _compile(sources: list[str], top: str, slot: Slot, limits: Limits) -> str:
    """The text of the compiled simulation, "" where it does not compile."""
    command = ["/rlvr/real/iverilog", "-g2012", "-s", top, "-o", "/rlvr/out/compiled", *sources]
    place = slot.folder / "out" / "compiled"
    place.unlink(missing_ok=True)
    if not await _runs(command, slot, limits) or not place.is_file():
        return ""
    return place.read_text(encoding="utf-8", errors="replace")


async def _is_stub(sources: list[str], top: str, slot: Slot, limits: Limits) -> bool | None:
    """Whether yosys finds no input that an output depends on; None where it cannot read it."""
    read = f"read_verilog -sv {' '.join(sources)}; hierarchy -top {top}; proc; flatten; opt -full"
    script = f"{read}; opt_clean; tee -q -o /rlvr/out/cone select -count o:* %ci* i:* %i"
    place = slot.folder / "out" / "cone"
    place.unlink(missing_ok=True)
    if not await _runs(["yosys", "-q", "-p", script], slot, limits) or not place.is_file():
        return None
    found = re.search(r"(\d+) objects", place.read_text(errors="replace"))
    return int(found[1]) == 0 if found else None


async def _runs(argv: list[str], slot: Slot, limits: Limits) -> bool:
    cpu_s = min(limits.cpu_s, _CPU_S)  # also of its waiting: a text may include a pipe
    limits = evolve(limits, cpu_s=cpu_s, wall_s=cpu_s)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/code/rundir"}
    ended = await slot.run(argv, environment=environment, limits=limits)
    return ended.rc == 0
