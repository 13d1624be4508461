"""Checks in milliseconds whether an answer compiles."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from rlvr_cvdp.audit.builds import include_folders, is_plain, sources, top_module, write_sources
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.toolchain.limited import run_limited
from rlvr_cvdp.toolchain.tools import require_tool

CompileCheck: TypeAlias = Callable[[str, str], bool]
"""Whether the reference compiles with a text in place of one of its files: path, text."""
_CPU_S = 20


@contextmanager
def compile_check(problem: CvdpProblem, reference: Mapping[str, str]) -> Iterator[CompileCheck]:
    """
    A check by Icarus Verilog that tells answers that compile from those that do not.

    A mutant that does not compile would be rejected by any harness and says nothing about this
    one. Where not even the reference compiles outside of its harness, everything passes.
    """
    paths, top = sources(problem, reference), top_module(problem)
    # `-t null` elaborates in full and writes nothing
    argv: list[str | Path] = [require_tool("iverilog"), "-g2012", "-t", "null"]
    argv += ["-s", top] if top else []
    argv += [*(f"-I{folder}" for folder in include_folders(problem, reference)), *paths]
    with tempfile.TemporaryDirectory(prefix="rlvr-cvdp-audit-") as name:
        folder = Path(name)
        write_sources(folder, problem, reference)

        def runs() -> bool:
            return run_limited(argv, cwd=folder, cpu_s=_CPU_S).rc == 0

        is_possible = is_plain(top or "top", *paths) and runs()

        def accepts(path: str, text: str) -> bool:
            if not is_possible:
                return True
            (folder / path).write_text(text, encoding="utf-8", errors="replace")
            try:
                return runs()
            finally:
                (folder / path).write_text(reference[path], encoding="utf-8", errors="replace")

        yield accepts
