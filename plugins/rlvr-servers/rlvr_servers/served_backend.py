"""The backends `vllm`, `sglang` and `openai`: models behind HTTP, evaluated token by token."""

from __future__ import annotations

from typing import Any, NoReturn

import structlog

from rlvr.errors import BackendError
from rlvr.parts import BuildContext
from rlvr_servers.backend import untrainable
from rlvr_servers.dialects import build_dialect
from rlvr_servers.echo import Echo
from rlvr_servers.probe import first_ids
from rlvr_servers.served_policy import ServedPolicy
from rlvr_servers.servers_config import ServersConfig

log = structlog.get_logger(__name__)


class ServedBackend:
    """Samples from `vllm:URL#NAME`, `sglang:URL#NAME` or `openai:URL#NAME`; trains nothing."""

    def __init__(self, config: ServersConfig | None, context: BuildContext) -> None:
        self._config = config or ServersConfig()
        self._spec = context.model
        self._policy: ServedPolicy | None = None

    async def __aenter__(self) -> ServedBackend:
        """
        Find the server, its model and its tokenizer.

        Raises:
            PrerequisiteError: It cannot be reached, wants a key, or its tokenizer is not here.
            ConfigError: No such model, or nobody says where its tokenizer is.
        """
        dialect, tokenizer, served = await build_dialect(self._spec, self._config)
        if isinstance(dialect, Echo):
            await dialect.settle(first_ids(tokenizer))
        known = f"@{served.version}" if served.version else ""
        if not known:
            log.warning(
                "weights_unknown",
                model=dialect.line.model,
                why="the server names no version of its weights; results say its name alone",
            )
        self._policy = ServedPolicy(
            dialect,
            tokenizer,
            context_length=served.context_length or 1 << 20,
            digest=f"{dialect.line.model}{known}",
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing stays open between requests."""
        self._policy = None

    async def policy(self) -> ServedPolicy:
        """What samplers ask."""
        if self._policy is None:
            raise BackendError("the server's backend was not opened: use `async with`")
        return self._policy

    async def logprobs(self, *_args: Any) -> NoReturn:
        """Refused: see `rlvr_servers.backend.untrainable`."""
        raise untrainable()

    async def step(self, *_args: Any) -> NoReturn:
        """Refused: see `rlvr_servers.backend.untrainable`."""
        raise untrainable()

    async def save(self, *_args: Any) -> NoReturn:
        """Refused: see `rlvr_servers.backend.untrainable`."""
        raise untrainable()

    async def load(self, *_args: Any) -> NoReturn:
        """Refused: see `rlvr_servers.backend.untrainable`."""
        raise untrainable()
