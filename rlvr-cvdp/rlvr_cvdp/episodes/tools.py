"""Runs the tools that a policy may use on its own files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve, field, frozen

from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.episodes.compile_order import sources_of
from rlvr_cvdp.launch.tree import write_tree
from rlvr_cvdp.paths import HDL
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.results.messages import Tool
from rlvr_cvdp.sandbox import Finished, Limits, Sandbox
from rlvr_cvdp.sandbox.records import STOPPED

CPU_S = 20.0
"""Processor time of a tool, where `cvdp.timeout_s` does not allow less."""
OUTPUT_MB = 2
"""Output after which a tool is stopped."""

_IVERILOG, _VVP = "/rlvr/real/iverilog", "/rlvr/real/vvp"
_COMPILER = (_IVERILOG, "-g2012", "-Wimplicit", "-Wportbind", "-Wselect-range", "-Winfloop")
_LINTER = ("--lint-only", "-Wall", "-Wno-fatal", "-Wno-DECLFILENAME", "-Wno-MULTITOP")
_SYNTHESIS = '"$0" -QT -q -p "$1; tee -q -o /tmp/stat stat" && cat /tmp/stat'
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/code/rundir", "LANG": "C.UTF-8"}


@frozen(kw_only=True)
class Ran:
    """How a tool run ended. `parses`: no syntax error, though later steps may have failed."""

    ok: bool
    tool: Tool = "iverilog"
    output: str = field(repr=False)
    parses: bool = True


class Tools:
    """
    Tools for one problem. Each run has a sandbox slot of its own, filled with the given files only.

    The hidden harness is never written there, nor a reference; nothing that a run writes comes
    back. The compiler is the real one, without the scan of verifications: what a policy's own
    testbench reads or writes stays inside the slot, and no verdict is taken there.

    Args:
        sandbox: Not one that verdicts are taken in, and not entered: its slots are made anew.
    """

    def __init__(self, problem: CvdpProblem, sandbox: Sandbox, config: CvdpConfig) -> None:
        self._problem = problem
        self._bare = evolve(problem, context={}, harness={}, reference={}, services=())
        self._sandbox = sandbox
        limits = Limits.of(config, cpu_s=min(CPU_S, config.timeout_s))
        self._limits = evolve(limits, output_mb=min(OUTPUT_MB, config.output_mb))

    async def compile(self, files: Mapping[str, str], roots: Sequence[str]) -> Ran:
        """Compile the sources among `roots` with what they use; no top is named."""
        sources = sources_of(files, roots)
        argv = [*_COMPILER, *_folders(files), "-t", "null", *sources]
        return await self._run(files, [(argv, "/code")] if sources else [], "iverilog")

    async def lint(self, files: Mapping[str, str], roots: Sequence[str]) -> Ran:
        """What Verilator says about the same files."""
        sources = sources_of(files, roots)
        argv = ["verilator", *_LINTER, *_folders(files), *sources]
        return await self._run(files, [(argv, "/code")] if sources else [], "verilator")

    async def stat(self, files: Mapping[str, str], roots: Sequence[str]) -> Ran:
        """Cells and wires after Yosys has synthesised the same files."""
        sources = sources_of(files, roots)
        if not sources:
            return Ran(ok=False, output="there is no Verilog to synthesise", tool="yosys")
        script = f"read_verilog -sv {' '.join([*_folders(files), *sources])}; synth -auto-top"
        argv = ["/bin/sh", "-c", _SYNTHESIS, "yosys", script]
        return await self._run(files, [(argv, "/code")], "yosys")

    async def simulate(self, files: Mapping[str, str], testbenches: Sequence[str]) -> Ran:
        """Compile testbenches with what they use and run them; what they print is the output."""
        sources = sources_of(files, testbenches)
        if not sources:
            return Ran(ok=False, output="no testbench was named")
        compiler = [*_COMPILER, *_folders(files), "-o", "/code/rundir/sim.vvp", *sources]
        commands = [(compiler, "/code"), ([_VVP, "-n", "sim.vvp"], "/code/rundir")]
        return await self._run(files, commands, "iverilog")

    async def _run(
        self, files: Mapping[str, str], commands: Sequence[tuple[list[str], str]], tool: Tool
    ) -> Ran:
        """Run commands in one slot, until one fails; there is nothing to do without any."""
        if not commands:
            return Ran(ok=True, output="", tool=tool)
        toolchain = self._sandbox.toolchain
        if tool not in toolchain.tools and tool != "iverilog":  # without that nothing can be done
            return Ran(ok=False, output=f"{tool} is not installed here", tool=tool)
        output = ""
        async with self._sandbox.slot(toolchain.stack_for(self._problem)) as slot:
            write_tree(slot.folder, self._bare, files)
            for argv, folder in commands:
                argv = [toolchain.tools[tool] if word == tool else word for word in argv]
                finished = await slot.run(
                    argv, environment=_ENVIRONMENT, limits=self._limits, working_dir=folder
                )
                output += finished.output
                if finished.rc != 0:
                    break
        return _ran(evolve(finished, output=output), tool)


def _ran(finished: Finished, tool: Tool) -> Ran:
    output = finished.output
    if finished.stopped:
        output = f"{output}\nit {STOPPED[finished.stopped]} and was stopped".lstrip()
        return Ran(ok=False, output=output, tool=tool)
    if finished.rc != 0 and not output.strip():
        output = f"it exited with {finished.rc}"
    parses = finished.rc == 0 or "error(s) during elaboration" in output
    return Ran(ok=finished.rc == 0, output=output, parses=parses, tool=tool)


def _folders(files: Mapping[str, str]) -> list[str]:
    """Folders in which a file may be looked for that another one includes, as arguments."""
    folders = {path.rpartition("/")[0] for path in files if path.endswith(HDL)}
    return [f"-I{folder}" for folder in sorted(folders) if folder]
