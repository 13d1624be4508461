"""A toolchain: the simulator, its helpers and the cocotb stacks that verdicts are made with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import PurePosixPath

from attrs import field, frozen

from rlvr import FrozenMap, PrerequisiteError, VerifierError
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.toolchain import cocotb_stacks
from rlvr_cvdp.toolchain.cocotb_stacks import PINS, Stack
from rlvr_cvdp.toolchain.tools import find_tool, install_command, tool_version

TOOLS = ("iverilog", "vvp", "verilator", "yosys")


@frozen(kw_only=True)
class Toolchain:
    """
    What verdicts are made with, on this machine, in a root folder or in an image.

    Attributes:
        name: `host`, `rootfs DIR` or `image NAME`.
        tools: Installed ones of `TOOLS`, name to real path as seen inside.
        versions: Their version numbers.
        stacks: cocotb generation to stack, paths as seen inside. On the host those that were
            there when it was looked at; `stack_for` may make more.
        modules: cocotb generation to what its stack can import; empty on the host.
        digest: Changes when anything does that can decide a verdict; part of verdict keys.
        provision: On the host, make a missing stack at first need.
    """

    name: str
    tools: Mapping[str, str] = field(converter=FrozenMap)
    versions: Mapping[str, str] = field(converter=FrozenMap)
    stacks: Mapping[int, Stack] = field(converter=FrozenMap)
    modules: Mapping[int, frozenset[str]] = field(factory=dict, converter=FrozenMap, repr=False)
    digest: str
    provision: bool = False

    @property
    def is_host(self) -> bool:
        """Its paths are paths of this machine."""
        return self.name == "host"

    def covered(self) -> dict[str, str]:
        """The tools over which a sandbox puts scripts of ours, whatever path they are called by."""
        found = {name: self.tool(name) for name in ("iverilog", "vvp")}
        return {**found, **{name: self.tools[name] for name in ("yosys",) if name in self.tools}}

    def companions(self) -> dict[str, str]:
        """What yosys looks for beside itself, by name, and where that is inside."""
        if "yosys" not in self.tools:
            return {}
        folder = PurePosixPath(self.tools["yosys"]).parent
        return {"share": f"{folder.parent}/share/yosys", "yosys-abc": f"{folder}/yosys-abc"}

    def tool(self, name: str) -> str:
        """
        The path of a tool as seen inside.

        Raises:
            PrerequisiteError: The toolchain lacks it.
        """
        if name in self.tools:
            return self.tools[name]
        fix = install_command(name) if self.is_host else "rlvr cvdp build-rootfs --help"
        raise PrerequisiteError(
            f"verifying CVDP problems needs {name}.",
            f"found: none in the toolchain of the {self.name} ({', '.join(self.tools)})",
            f"try: {fix}",
        )

    def why_no_stack(self, problem: CvdpProblem) -> str:
        """Why none of the stacks can run a problem's harness, "" where one can."""
        if self.is_host:
            return cocotb_stacks.why_no_stack(problem)
        stack = self.stacks.get(problem.generation)
        if stack is None:
            return f"the {self.name} holds no cocotb of generation {problem.generation}"
        missing = sorted(set(problem.needs) - self.modules.get(problem.generation, frozenset()))
        if missing:
            return f"its harness imports {', '.join(missing)}, which {stack.name} lacks"
        return ""

    def stack_for(self, problem: CvdpProblem) -> Stack:
        """
        The stack that a problem's harness was written for.

        Raises:
            PrerequisiteError: The host's is not there, and may not or cannot be made.
            VerifierError: The toolchain can never run the harness.
        """
        if self.is_host:
            return cocotb_stacks.stack_for(problem, provision=self.provision)
        missing = self.why_no_stack(problem)
        if missing:
            raise VerifierError(f"{problem.id} cannot be verified: {missing}")
        return self.stacks[problem.generation]


def host_toolchain(*, provision: bool = True) -> Toolchain:
    """The tools on this machine's PATH and the stacks of this Python."""
    paths = {name: path for name in TOOLS if (path := find_tool(name))}
    versions = {name: tool_version(path) for name, path in paths.items()}
    running = cocotb_stacks.running_stack()
    found = {2: running or cocotb_stacks.managed_stack(2), 1: cocotb_stacks.managed_stack(1)}
    # What a stack will hold is known before it is made, so that making it changes no key.
    held = {str(g): list(pins) for g, pins in PINS.items()}
    if running is not None:
        held["running"] = sorted(running.versions.items())  # type: ignore[arg-type]
    return Toolchain(
        name="host",
        tools={name: str(path) for name, path in paths.items()},
        versions=versions,
        stacks={g: stack for g, stack in found.items() if stack is not None},
        digest=digest_of({"tools": versions, "stacks": held}),
        provision=provision,
    )


def digest_of(facts: object) -> str:
    """sha256 over plain values; the order of a mapping does not count."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
