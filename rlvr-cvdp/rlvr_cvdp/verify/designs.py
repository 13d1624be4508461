"""A whole design, given or answered: compiled, as one text, and whether it is a stub."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath

from attrs import frozen

from rlvr_cvdp.launch.tree import write_tree
from rlvr_cvdp.netlist.same import runs
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.results.plain import read_plain
from rlvr_cvdp.sandbox import Limits, SandboxLease


def folders_of(paths: Collection[str]) -> list[str]:
    """Options for the folders in which included files may lie."""
    return [f"-I/code/{folder}" for folder in sorted({str(PurePosixPath(p).parent) for p in paths})]


@frozen(kw_only=True)
class Design:
    """A whole design: compiled, and as one text after the preprocessor; "" where it is not."""

    simulation: str = ""
    text: str = ""


def words_of(text: str) -> set[str]:
    """The words of a text."""
    return set(re.findall(r"\w+", text))


async def given_design(
    problem: CvdpProblem,
    sources: list[str],
    top: str,
    slot: SandboxLease,
    limits: Limits,
    files: Mapping[str, str],
) -> Design:
    """The design before the answer; empty where there was none, or where it does not compile."""
    given = {path: problem.context[path] for path in problem.targets if path in problem.context}
    if not given or not top:
        return Design()
    return await design_of(problem, given, sources, top, slot, limits, files)


_known: dict[tuple[str, str], Design] = {}
"""Given designs and references, by the problem's digest and what they are."""


async def design_of(
    problem: CvdpProblem,
    design: Mapping[str, str],
    sources: list[str],
    top: str,
    slot: SandboxLease,
    limits: Limits,
    files: Mapping[str, str],
) -> Design:
    """Another design in the answer's place, which is put back."""
    key = (problem.digest(), "given" if design != problem.reference else "reference")
    if key not in _known:
        for path in files:
            (slot.folder / "tree" / path).unlink(missing_ok=True)
        write_tree(slot.folder, problem, design)
        simulation = await compiled_text(sources, top, slot, limits)
        text = await one_text(sources, slot, limits) if simulation else ""
        _known[key] = Design(simulation=simulation, text=text)
        for path in design:
            (slot.folder / "tree" / path).unlink(missing_ok=True)
        write_tree(slot.folder, problem, files)
    return _known[key]


async def one_text(sources: list[str], slot: SandboxLease, limits: Limits) -> str:
    """The sources after the preprocessor, "" where it cannot read them."""
    line = slot.folder / "tree" / "src" / ".rlvr_line.v"  # a file may end within a line
    line.write_text("\n", encoding="utf-8")
    words = folders_of([source.removeprefix("/code/") for source in sources])
    words += [word for source in sources for word in (source, f"/code/src/{line.name}")]
    preprocess = ["/rlvr/real/iverilog", "-g2012", "-E", "-o", "/rlvr/out/expanded", *words]
    is_done = await runs(preprocess, slot, limits)
    line.unlink()
    return read_plain(slot.folder / "out" / "expanded") if is_done else ""


async def compiled_text(sources: list[str], top: str, slot: SandboxLease, limits: Limits) -> str:
    """The text of the compiled simulation, "" where it does not compile."""
    command = ["/rlvr/real/iverilog", "-g2012", "-s", top, "-o", "/rlvr/out/compiled", *sources]
    place = slot.folder / "out" / "compiled"
    place.unlink(missing_ok=True)
    if not await runs(command, slot, limits) or not place.is_file():
        return ""
    return place.read_text(encoding="utf-8", errors="replace")


async def is_stub(sources: list[str], top: str, slot: SandboxLease, limits: Limits) -> bool | None:
    """Whether yosys finds no input that an output depends on; None where it cannot read it."""
    read = f"read_verilog -sv {' '.join(sources)}; hierarchy -top {top}; proc; flatten; opt -full"
    script = f"{read}; opt_clean; tee -q -o /rlvr/out/cone select -count o:* %ci* i:* %i"
    place = slot.folder / "out" / "cone"
    place.unlink(missing_ok=True)
    if not await runs(["yosys", "-q", "-p", script], slot, limits) or not place.is_file():
        return None
    found = re.search(r"(\d+) objects", place.read_text(errors="replace"))
    return int(found[1]) == 0 if found else None
