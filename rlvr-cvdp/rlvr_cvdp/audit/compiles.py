"""Whether an answer compiles at all, found out in milliseconds."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from rlvr_cvdp.audit.builds import include_folders, is_plain, sources, top_module, write_sources
from rlvr_cvdp.audit.limited import run_limited
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.toolchain.tools import require_tool

_CPU_S = 20


class CompileCheck:
    """
    Tells answers that compile from those that do not, by Icarus Verilog.

    A mutant that does not compile would be rejected by any harness and says nothing about this
    one. Where not even the reference compiles outside of its harness, everything passes.
    """

    def __init__(self, problem: CvdpProblem, reference: Mapping[str, str]) -> None:
        self._problem = problem
        self._reference = dict(reference)
        self._iverilog = require_tool("iverilog")
        self._folder = tempfile.TemporaryDirectory(prefix="rlvr-cvdp-audit-")
        self._argv: list[str | Path] = []

    def __enter__(self) -> CompileCheck:
        write_sources(self._place, self._problem, self._reference)
        paths = sources(self._problem, self._reference)
        top = top_module(self._problem)
        includes = [f"-I{folder}" for folder in include_folders(self._problem, self._reference)]
        # `-t null` elaborates in full and writes nothing
        self._argv = [self._iverilog, "-g2012", "-t", "null", *includes, *paths]
        self._argv[4:4] = ["-s", top] if top else []
        if not is_plain(top or "top", *paths) or not self._runs():
            self._argv = []
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._folder.cleanup()

    @property
    def is_possible(self) -> bool:
        """False where the reference does not compile this way."""
        return bool(self._argv)

    def accepts(self, path: str, text: str) -> bool:
        """Whether the reference compiles with `text` in place of the file `path`."""
        if not self._argv:
            return True
        place = self._place / path
        place.write_text(text, encoding="utf-8", errors="replace")
        try:
            return self._runs()
        finally:
            place.write_text(self._reference[path], encoding="utf-8", errors="replace")

    @property
    def _place(self) -> Path:
        return Path(self._folder.name)

    def _runs(self) -> bool:
        return run_limited(self._argv, cwd=self._place, cpu_s=_CPU_S).rc == 0
