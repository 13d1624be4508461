"""The backends `vllm`, `sglang` and `openai`: models behind HTTP, evaluated token by token."""

from __future__ import annotations

import structlog

from rlvr import BackendError, BuildContext, ConfigError, SampledBackend
from rlvr_servers.backend import untrainable
from rlvr_servers.protocols.choose import build_protocol
from rlvr_servers.protocols.completions import Echo
from rlvr_servers.protocols.probe import first_ids
from rlvr_servers.served_policy import ServedPolicy
from rlvr_servers.servers_config import ServersConfig

log = structlog.get_logger(__name__)


class ServedBackend(SampledBackend):
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
        protocol, tokenizer, served = await build_protocol(self._spec, self._config)
        if isinstance(protocol, Echo):
            await protocol.settle(first_ids(tokenizer))
        known = f"@{served.version}" if served.version else ""
        if not known:
            log.warning(
                "weights_unknown",
                model=protocol.line.model,
                why="the server names no version of its weights; results say its name alone",
            )
        self._policy = ServedPolicy(
            protocol,
            tokenizer,
            context_length=served.context_length or 1 << 20,
            digest=f"{protocol.line.model}{known}",
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

    def untrainable(self) -> ConfigError:
        """See `rlvr_servers.backend.untrainable`."""
        return untrainable()
