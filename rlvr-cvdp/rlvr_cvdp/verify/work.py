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
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from attrs import frozen

from rlvr_cvdp.hdl.names import KEYWORDS, Token, code, module_names, modules_in
from rlvr_cvdp.hdl.ports import PortsError, header_of
from rlvr_cvdp.netlist.compiled import Ports, ports_of, same_simulation
from rlvr_cvdp.netlist.proof import simulated
from rlvr_cvdp.netlist.same import Circuit, is_same_circuit
from rlvr_cvdp.paths import HDL, VERILOG
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.sandbox import Limits, SandboxLease
from rlvr_cvdp.verify.designs import Design, Workplace, folders_of, words_of

_DRIVEN = re.compile(r"\bdut\.(\w+)\.(?:value|setimmediatevalue)\b\s*(?:=(?!=)|\()")
_EITHER = "input (packed or not)"
_UNIT = re.compile(r"\b(?:module|interface|package|program|class|primitive|function|typedef)\b")


@frozen(kw_only=True)
class Work:
    """
    What an answer did; the defaults are those of an answer that nothing is known against.

    Attributes:
        why: A sentence on what it did not do; "" where nothing is missing.
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


_AGAIN = Work(why="it is the given design again", differs=False)


async def look_at_work(
    problem: CvdpProblem,
    files: Mapping[str, str],
    *,
    slot: SandboxLease,
    limits: Limits,
    python: str,
) -> Work:
    """
    What an answer did; its tree lies in the slot, and lies there unchanged afterwards.

    `python` is one inside.

    Raises:
        VerifierError: The sandbox could not run.
    """
    place = Workplace(problem=problem, files=files, slot=slot, limits=limits)
    top = place.top
    expanded = await _expanded(place)
    texts = {**files, **(expanded or {})}
    read = {path: code(text) for path, text in texts.items()}  # once: a text may be long
    why = _missing(problem, files, texts, read)
    if why:
        return Work(why=why, is_there=False, has_names=False, has_ports=False)
    if all(_is_given(problem, path, text, texts[path], read[path]) for path, text in files.items()):
        return _AGAIN
    if expanded is None:
        why = "the preprocessor cannot read it"
        return Work(why=why, has_names=False, has_ports=False)
    given = await place.given()
    compiled = await place.simulation() if top else ""
    if given.simulation:
        answer = Design(simulation=compiled, text=await place.text())
        if await _is_same(place, given, answer, python):
            return _AGAIN
    names = {token.text for found in read.values() for token in found}
    if not top or not any(top in modules_in(found) for found in read.values()):
        return Work()
    wanted = await _wanted(place)
    missing = sorted(set(wanted) - names)
    if missing:
        why = f"it does not name the port {missing[0]}"
        return Work(why=why, has_names=False, has_ports=False)
    if not compiled:
        return Work()
    found = ports_of(compiled, top)
    for name, (direction, width) in wanted.items():
        has = found.get(name)
        accepted = ("input", "input array") if direction == _EITHER else (direction,)
        if has is None or has[0] not in accepted or (width and has[1] != width):
            why = f"its module {top} has not the port {direction} {name}"
            return Work(why=f"{why} of {width} bits" if width else why, has_ports=False)
    return Work(is_stub=await place.is_stub())


async def _expanded(place: Workplace) -> dict[str, str] | None:
    """The files after the preprocessor, None where it cannot read them."""
    problem, tree = place.problem, place.slot.folder / "tree"
    paths = [path for path in place.files if path.endswith(VERILOG)]
    if not paths:
        return {}
    # Marks between the files, which an answer cannot foresee: macros go from file to file.
    mark = f"rlvr_{secrets.token_hex(8)}"
    (tree / "src" / f"{mark}.v").write_text(f"\n{mark}\n", encoding="utf-8")
    folders = folders_of({*problem.context, *problem.harness, *place.files, "rtl/any"})
    words = [word for path in paths for word in (f"/src/{mark}.v", f"/code/{path}")]
    text = await place.preprocessed(*folders, *words)
    (tree / "src" / f"{mark}.v").unlink()
    expanded = (text or "").split(mark)[1:]
    return dict(zip(paths, expanded, strict=True)) if len(expanded) == len(paths) else None


def _missing(
    problem: CvdpProblem,
    files: Mapping[str, str],
    texts: Mapping[str, str],
    read: Mapping[str, Sequence[Token]],
) -> str:
    """What of an answer's targets is not there, "" for nothing; `read`: tokens of the texts."""
    given = {**problem.context, **problem.reference}
    absent = [t for t in problem.targets if t not in files and t not in problem.context]
    if absent:
        return f"the file {absent[0]} is not in it"
    defined = {name for found in read.values() for name in modules_in(found)}
    for path, text in texts.items():
        name = _main_module(problem, path, given.get(path, ""))
        if name and name not in defined:
            return f"the module {name} is not in it"
        if path.endswith(HDL):
            words = {token.text for token in read[path]}
            is_header = path.endswith((".vh", ".svh"))
            if not words or not (is_header or _UNIT.search(" ".join(words))):
                return f"the file {path} defines nothing"
        elif not text.strip():
            return f"the file {path} is empty"
    return ""


def _main_module(problem: CvdpProblem, path: str, given: str) -> str:
    """The module that a file must define, "" where nothing says so."""
    if not path.endswith(VERILOG):
        return ""
    _, top = simulated(problem)
    stem, names = PurePosixPath(path).stem, _given_modules(given)
    for name in (top, stem):
        if name in names:
            return name
    if names:
        return names[0]
    others = {**problem.context, **problem.harness}
    elsewhere = {
        name
        for other, text in others.items()
        if other not in problem.targets and other.endswith(VERILOG)
        for name in _given_modules(text)
    }
    hdl = [target for target in problem.targets if target.endswith(VERILOG)]
    return top if top and top not in elsewhere and (len(hdl) == 1 or stem == top) else ""


@functools.lru_cache(maxsize=512)
def _given_modules(text: str) -> tuple[str, ...]:
    """The modules of a file of the problem, which each of its answers asks for again."""
    return tuple(module_names(text))


def _is_given(
    problem: CvdpProblem, path: str, raw: str, expanded: str, read: Sequence[Token]
) -> bool:
    """
    Whether a file is the given one, but for blanks, comments, attributes and names.

    `read`: the tokens of the file after the preprocessor.
    """
    given = problem.context.get(path)
    if given is None:
        return False
    same = _given_shape(given)
    return same == _shape(read) or (raw != expanded and same == _shape(code(raw)))


@functools.lru_cache(maxsize=512)
def _given_shape(text: str) -> tuple[str, ...]:
    return _shape(code(text))


def _shape(found: Sequence[Token]) -> tuple[str, ...]:
    numbers: dict[str, str] = {}
    words = []
    for token in found:
        if token.kind in ("name", "escaped") and token.text not in KEYWORDS:
            words.append(numbers.setdefault(token.text.removeprefix("\\"), f"#{len(numbers)}"))
        elif not (token.text == ";" and words[-1:] == [";"]):
            words.append(token.text)
    return tuple(words)


async def _wanted(place: Workplace) -> Ports:
    """
    The ports that the top module needs: name to direction and width (0: any).

    Those of the reference where the data set has one; of a module header in the request; of the
    given module, where the harness names them; or inputs that the harness's tests drive and the
    request names.
    """
    problem, top = place.problem, place.top
    if problem.reference:
        return ports_of((await place.other(problem.reference)).simulation, top)
    asked = _header_ports(problem.prompt, top)
    if asked:
        return asked
    harness = "\n".join(text for path, text in problem.harness.items() if "compose" not in path)
    named, asks = words_of(harness), words_of(problem.prompt)
    text = (await place.given()).simulation
    if text:
        return {
            name: (direction, 0 if name in asks else width)
            for name, (direction, width) in ports_of(text, top).items()
            if name in named
        }
    return {name: (_EITHER, 0) for name in _DRIVEN.findall(harness) if name in asks}


def _header_ports(prompt: str, top: str) -> Ports:
    try:
        header = header_of(prompt, top)
    except (PortsError, StopIteration):
        return {}
    return {port.name: (port.direction, 0) for port in header.ports}


async def _is_same(place: Workplace, given: Design, answer: Design, python: str) -> bool:
    """Whether an answer does what the given design does, by the simulator's or yosys's reading."""
    top, problem = place.top, place.problem
    is_known = bool(answer.simulation) and same_simulation(given.simulation, answer.simulation)
    if not answer.text:
        return is_known
    harness = "\n".join(problem.harness.values())
    driven = {*re.findall(r"\bdut\.(\w+)", harness), *_header_ports(problem.prompt, top)}
    return await is_same_circuit(
        Circuit(text=given.text, ports=ports_of(given.simulation, top)),
        Circuit(text=answer.text, ports=driven & {*ports_of(answer.simulation, top)}),
        top,
        asked=words_of(harness),
        is_known=is_known,
        slot=place.slot,
        limits=place.limits,
        python=python,
    )
