"""The backend `server`: a model that lives behind HTTP and is only sampled."""

from __future__ import annotations

from typing import Any

import structlog

from rlvr import (
    BackendError,
    BuildContext,
    ConfigError,
    PrerequisiteError,
    SampledBackend,
    UnknownNameError,
)
from rlvr_servers.client.address import Address
from rlvr_servers.client.chat import ChatClient
from rlvr_servers.client.endpoint import LISTING_TIMEOUT_S, server_key
from rlvr_servers.client.http import UnreachableError, exchange
from rlvr_servers.client.requests import key_error
from rlvr_servers.config import ServerConfig
from rlvr_servers.policy import ServerPolicy

log = structlog.get_logger(__name__)


class ServerBackend(SampledBackend):
    """
    Samples from `server:URL#NAME`. Opening it asks the server which models it has.

    The key is read from `RLVR_SERVER_KEY` and goes nowhere but into requests to that URL.
    """

    def __init__(self, config: ServerConfig | None, context: BuildContext) -> None:
        self._config = config or ServerConfig()
        self._address = Address.parse(context.model)
        self._client: ChatClient | None = None

    async def __aenter__(self) -> ServerBackend:
        """
        Find the server and its model.

        Raises:
            PrerequisiteError: It cannot be reached, or wants a key.
            UnknownNameError: No model was named and it has none, or several.
        """
        key = server_key()
        served = await self._served(key)
        model = self._address.model or self._only(served)
        if served and model not in served:
            log.warning("model_not_listed", model=model, served=list(served[:20]))
        self._client = ChatClient(
            address=self._address, model=model, config=self._config, key=key, served=served
        )
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Nothing stays open between requests."""
        self._client = None

    async def policy(self) -> ServerPolicy:
        """What the sampler `chat` asks."""
        if self._client is None:
            raise BackendError("the server's backend was not opened: use `async with`")
        return ServerPolicy(client=self._client)

    async def _served(self, key: str) -> tuple[str, ...]:
        try:
            reply = await exchange(
                self._address.url("/models"),
                key=key,
                body=None,
                timeout_s=min(self._config.timeout_s, LISTING_TIMEOUT_S),
                is_local=self._address.is_local,
            )
        except UnreachableError as error:
            raise PrerequisiteError(
                f"the server at {self._address.base} cannot be reached.",
                f"found: {error}",
                "start it (vllm serve NAME; llama-server -m FILE) or check the URL of --model",
            ) from error
        if reply.status in (401, 403):
            raise key_error(self._address, reply, has_key=bool(key))
        return _names(reply.json()) if reply.status == 200 else ()

    def _only(self, served: tuple[str, ...]) -> str:
        if len(served) == 1:
            return served[0]
        raise UnknownNameError(
            f"no model of the server at {self._address.base} was named.",
            f"it serves: {', '.join(served[:20]) or 'it lists none'}",
            f"name one: --model server:{self._address.base}#NAME",
        )

    def untrainable(self) -> ConfigError:
        """See `rlvr_servers.backend.untrainable`."""
        return untrainable()


def untrainable() -> ConfigError:
    """The error of a trainer's primitives, for a model that is only asked."""
    return ConfigError(
        "a model behind a server was to be trained.",
        "found: servers give texts, no gradients and no weights",
        "train a local model; measure this one with: rlvr eval",
    )


def _names(body: Any) -> tuple[str, ...]:
    listed = body.get("data") if isinstance(body, dict) else None
    if not isinstance(listed, list):
        return ()
    return tuple(str(m["id"]) for m in listed if isinstance(m, dict) and "id" in m)
