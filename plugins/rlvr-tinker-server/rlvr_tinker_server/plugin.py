"""The one command of rlvr-tinker-server. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable

from rlvr import CommandSpec, hookimpl

RLVR_API = 1


@hookimpl
def rlvr_commands() -> Iterable[CommandSpec]:
    """`rlvr tinker-server`."""
    yield CommandSpec(
        name="tinker-server",
        target="rlvr_tinker_server.command:main",
        summary="Serve the Tinker API on this machine: --model SPEC",
        is_top=True,
    )
