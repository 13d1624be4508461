"""A whole design in a slot, given or answered: compiled, as one text, and whether it is a stub."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import PurePosixPath

from attrs import define, frozen

from rlvr_cvdp.launch.tree import write_tree
from rlvr_cvdp.netlist.proof import simulated
from rlvr_cvdp.netlist.same import runs
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.results.plain import read_plain
from rlvr_cvdp.sandbox import Limits, SandboxLease

_COMPILER, _YOSYS = ("/rlvr/real/iverilog", "-g2012"), "/rlvr/real/yosys"


def folders_of(paths: Collection[str]) -> list[str]:
    """Options for the folders in which included files may lie."""
    return [f"-I/code/{folder}" for folder in sorted({str(PurePosixPath(p).parent) for p in paths})]


def words_of(text: str) -> set[str]:
    """The words of a text."""
    return set(re.findall(r"\w+", text))


@frozen(kw_only=True)
class Design:
    """A whole design: compiled, and as one text after the preprocessor; "" where it is not."""

    simulation: str = ""
    text: str = ""


_known: dict[tuple[str, bool], Design] = {}
"""Given designs and references, by the problem's digest and whether it is the reference."""


@define(kw_only=True, slots=False)
class Workplace:
    """A slot in which the tree of a problem lies with an answer's files."""

    problem: CvdpProblem
    files: Mapping[str, str]
    slot: SandboxLease
    limits: Limits

    @cached_property
    def sources(self) -> list[str]:
        """The files that the harness simulates, paths inside."""
        return simulated(self.problem)[0]

    @cached_property
    def top(self) -> str:
        """The top module that the harness names, "" for none."""
        return simulated(self.problem)[1]

    async def runs(self, *argv: str) -> bool:
        """Whether a tool ends well."""
        return await runs([*argv], self.slot, self.limits)

    async def given(self) -> Design:
        """The design before the answer; empty where there was none, or it does not compile."""
        problem = self.problem
        given = {path: problem.context[path] for path in problem.targets if path in problem.context}
        return await self.other(given) if given and self.top else Design()

    async def other(self, design: Mapping[str, str]) -> Design:
        """Another design in the answer's place, which is put back."""
        key = (self.problem.digest(), design == self.problem.reference)
        if key not in _known:
            self._replace(self.files, design)
            simulation = await self.simulation()
            text = await self.text() if simulation else ""
            _known[key] = Design(simulation=simulation, text=text)
            self._replace(design, self.files)
        return _known[key]

    def _replace(self, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        for path in old:
            (self.slot.folder / "tree" / path).unlink(missing_ok=True)
        write_tree(self.slot.folder, self.problem, new)

    async def preprocessed(self, *words: str) -> str | None:
        """What the preprocessor makes of these files, None where it cannot read them."""
        is_done = await self.runs(*_COMPILER, "-E", "-o", "/rlvr/out/expanded", *words)
        return read_plain(self.slot.folder / "out" / "expanded") if is_done else None

    async def text(self) -> str:
        """The sources after the preprocessor, "" where it cannot read them."""
        line = self.slot.folder / "tree" / "src" / ".rlvr_line.v"  # a file may end within a line
        line.write_text("\n", encoding="utf-8")
        words = folders_of([source.removeprefix("/code/") for source in self.sources])
        words += [word for source in self.sources for word in (source, f"/code/src/{line.name}")]
        text = await self.preprocessed(*words)
        line.unlink()
        return text or ""

    async def simulation(self) -> str:
        """The text of the compiled simulation, "" where it does not compile."""
        words = ("-s", self.top, "-o", "/rlvr/out/compiled", *self.sources)
        return await self._made("compiled", *_COMPILER, *words) or ""

    async def is_stub(self) -> bool | None:
        """Whether yosys finds no input that an output depends on; None where it cannot read it."""
        script = f"read_verilog -sv {' '.join(self.sources)}; hierarchy -top {self.top}; proc; "
        script += "flatten; opt -full; opt_clean; "
        script += "tee -q -o /rlvr/out/cone select -count o:* %ci* i:* %i"
        made = await self._made("cone", _YOSYS, "-q", "-p", script)
        found = re.search(r"(\d+) objects", made or "")
        return int(found[1]) == 0 if found else None

    async def _made(self, name: str, *argv: str) -> str | None:
        """The text of the file of this name that a tool makes, None where it makes none."""
        place = self.slot.folder / "out" / name
        place.unlink(missing_ok=True)
        if not await self.runs(*argv) or not place.is_file():
            return None
        return place.read_text(encoding="utf-8", errors="replace")
