"""One CVDP problem in the plugin's own form, the same for all official formats."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from attrs import field, frozen

from rlvr import FrozenMap


@frozen(kw_only=True)
class Service:
    """
    One service of the harness's compose file: a command that must exit 0.

    Attributes:
        name: As in the compose file.
        command: Argument list, run in `working_dir` inside the sandbox.
        environment: Variables of its env files and its own `environment`.
        runs_cocotb: It must launch the simulator, and cocotb's own summary must agree.
        has_plain_build: It builds exactly `VERILOG_SOURCES` with no defines, includes or other
            arguments, so a syntax error seen outside of it is one that it would see.
        tool: "yosys" or "verilator" where the service runs it, else "".
    """

    name: str
    command: tuple[str, ...]
    working_dir: str = "/code/rundir"
    environment: Mapping[str, str] = field(factory=dict, converter=FrozenMap)
    runs_cocotb: bool = True
    has_plain_build: bool = False
    tool: str = ""

    @property
    def sources(self) -> tuple[str, ...]:
        """The files of its variable VERILOG_SOURCES, relative to /code if they are in there."""
        words = self.environment.get("VERILOG_SOURCES", "").split()
        return tuple(word.removeprefix("/code/") for word in words)

    @property
    def top(self) -> str:
        """The module that it simulates by its variable TOPLEVEL, "" where it names none."""
        return self.environment.get("TOPLEVEL", "")


@frozen(kw_only=True)
class CvdpProblem:
    """
    A problem with everything that its verification needs.

    Attributes:
        context: Files that the policy is shown, path to text.
        targets: Files that the policy must write; nothing else of an answer is ever written.
        harness: The hidden files that judge it.
        reference: A solution where the data set holds one; never written into a sandbox unless
            it is itself the answer.
        generation: cocotb generation that the harness was written for, 1 or 2.
        needs: Packages that the harness imports besides cocotb, pytest and the standard library.
        response: The reference in words of a comprehension problem, which has no harness.
        source: "cvdp", or "training" for problems of no benchmark (`datasets.from_public`).
    """

    id: str
    category: str
    difficulty: str
    prompt: str
    context: Mapping[str, str] = field(converter=FrozenMap, repr=False)
    targets: tuple[str, ...]
    harness: Mapping[str, str] = field(converter=FrozenMap, repr=False)
    reference: Mapping[str, str] = field(factory=dict, converter=FrozenMap, repr=False)
    services: tuple[Service, ...] = field(default=(), repr=False)
    generation: int = 2
    needs: tuple[str, ...] = ()
    split: str = ""
    is_starter: bool = False
    response: str = field(default="", repr=False)
    source: str = "cvdp"

    @property
    def is_comprehension(self) -> bool:
        """Whether its answer is words, which are compared with the reference's."""
        return bool(self.response)

    @property
    def visible(self) -> dict[str, str]:
        """The files that a policy is given; nothing of the harness, and nothing below `src`."""
        hidden = self.harness.keys()
        return {
            path: text
            for path, text in self.context.items()
            if path not in hidden and not path.startswith("src/")
        }

    def digest(self) -> str:
        """sha256 over what decides a verdict: harness, context and targets, or the response."""
        parts: list[object] = [dict(self.harness), dict(self.context), list(self.targets)]
        parts += [self.response] if self.response else []
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
