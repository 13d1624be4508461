"""The backends `server`, `vllm`, `sglang` and `openai`: models behind HTTP, only sampled."""

from __future__ import annotations

import structlog

from rlvr import BackendError, BuildContext, ConfigError, Policy, SampledBackend
from rlvr_servers.client.endpoint import Endpoint
from rlvr_servers.config import ServerConfig, ServersConfig
from rlvr_servers.policy import ServerPolicy
from rlvr_servers.protocols.choose import KINDS, build_protocol
from rlvr_servers.protocols.completions import Echo
from rlvr_servers.protocols.probe import first_ids
from rlvr_servers.served_policy import ServedPolicy

log = structlog.get_logger(__name__)


class _Served(SampledBackend):
    """A model behind a server: its policy, and the reason why it cannot be trained."""

    _policy: Policy | None = None

    async def __aexit__(self, *_: object) -> None:
        """Nothing stays open between requests."""
        self._policy = None

    async def policy(self) -> Policy:
        """What samplers ask."""
        if self._policy is None:
            raise BackendError("the server's backend was not opened: use `async with`")
        return self._policy

    def untrainable(self) -> ConfigError:
        """The error of a trainer's primitives."""
        return ConfigError(
            "a model behind a server was to be trained.",
            "found: servers give texts, no gradients and no weights",
            "train a local model; measure this one with: rlvr eval",
        )


class ServerBackend(_Served):
    """
    Samples from `server:URL#NAME`. Opening it asks the server which models it has.

    The key is read from `RLVR_SERVER_KEY` and goes nowhere but into requests to that URL.
    """

    def __init__(self, config: ServerConfig | None, context: BuildContext) -> None:
        self._config = config or ServerConfig()
        self._spec = context.model

    async def __aenter__(self) -> ServerBackend:
        """
        Find the server and its model.

        Raises:
            ConfigError: The model spec holds no URL.
            PrerequisiteError: It cannot be reached, or wants a key.
            UnknownNameError: No model was named and it has none, or several.
        """
        found = await Endpoint.open(self._spec, self._config, KINDS["server"])
        if found.listed and found.model not in found.listed:
            log.warning("model_not_listed", model=found.model, served=list(found.listed)[:20])
        self._policy = ServerPolicy(endpoint=found, config=self._config)
        return self


class ServedBackend(_Served):
    """Samples tokens from `vllm:URL#NAME`, `sglang:URL#NAME` or `openai:URL#NAME`."""

    def __init__(self, config: ServersConfig | None, context: BuildContext) -> None:
        self._config = config or ServersConfig()
        self._spec = context.model

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
        model, known = protocol.endpoint.model, f"@{served.version}" if served.version else ""
        if not known:
            log.warning(
                "weights_unknown",
                model=model,
                why="the server names no version of its weights; results say its name alone",
            )
        self._policy = ServedPolicy(
            protocol,
            tokenizer,
            context_length=served.context_length or 1 << 20,
            digest=f"{model}{known}",
        )
        return self
