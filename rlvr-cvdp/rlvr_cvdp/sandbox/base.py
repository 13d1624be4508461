"""What verification needs of a sandbox, whichever makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Protocol

from rlvr_cvdp.sandbox.records import Finished, Limits
from rlvr_cvdp.toolchain.cocotb_stacks import Stack
from rlvr_cvdp.toolchain.toolchain import Toolchain


class SandboxLease(Protocol):
    """
    One problem's private place (slot) in a sandbox, filled by `launch.tree.write_tree`.

    `folder/tree` is /code inside, `folder/tree/src` is /src (read-only), `folder/out` takes the
    notes of the sandbox's own programs.
    """

    folder: Path

    async def run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        limits: Limits,
        working_dir: str = "/code/rundir",
    ) -> Finished:
        """
        Run a command to its end or to its limits; nothing of it stays running.

        Cancelling it kills everything in the sandbox before the cancellation goes on.

        Raises:
            VerifierError: The sandbox could not start, or was ended by somebody else.
        """


class Sandbox(Protocol):
    """
    Makes slots.

    As an async context manager it keeps warm ones; outside of that each is made anew.
    """

    name: str
    toolchain: Toolchain

    def slot(self, stack: Stack) -> AbstractAsyncContextManager[SandboxLease]:
        """An empty slot for harnesses of a stack; emptied again when it is left."""

    async def __aenter__(self) -> Sandbox: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
