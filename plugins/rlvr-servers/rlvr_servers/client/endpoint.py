"""Endpoint of one model on one server: its requests, and what a refusal means."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from attrs import define

from rlvr import PrerequisiteError, RlvrError, UnknownNameError
from rlvr_servers.client.address import Address
from rlvr_servers.client.http import Reply, UnreachableError, exchange
from rlvr_servers.client.requests import KEY, Client, RequestError, key_error
from rlvr_servers.servers_config import ServersConfig

LISTING_TIMEOUT_S = 30.0
T = TypeVar("T")


class RefusedError(RequestError):
    """The server read the request and will not do it; its words."""


class MissingError(RequestError):
    """The server has no such path: it was started without it, or is another kind of server."""


@define(kw_only=True)
class Endpoint:
    """
    A server, one of its models, and how both are asked.

    Attributes:
        model: Its name there.
        listed: What `/v1/models` says of it; {} where the server does not list it.
    """

    caller: Client
    model: str
    listed: Mapping[str, Any]

    @property
    def address(self) -> Address:
        """Where the server is."""
        return self.caller.address

    async def ask(
        self,
        url: str,
        body: Mapping[str, Any] | None,
        read: Callable[[Any], T],
        *,
        retries: int | None = None,
    ) -> T:
        """
        What `read` makes of the JSON that comes back; it may raise `BrokenError`.

        Raises:
            RequestError: No answer after all repetitions; `RefusedError`, `MissingError`.
            PrerequisiteError: The server wants a (another) key.
            UnknownNameError: It has no such model.
        """
        return await self.caller.call(
            url, body, lambda reply: read(reply.json()), self._refusal, retries=retries
        )

    def _refusal(self, reply: Reply) -> RlvrError:
        if reply.status in (401, 403):
            return key_error(self.address, reply, has_key=bool(self.caller.key))
        if reply.status in (404, 405) and "model" in reply.message.lower():
            return UnknownNameError(
                f"model '{self.model}' of the server at {self.address.base} was asked for.",
                f"found: {reply.message}",
                "name one that it serves, after the # of the URL",
            )
        if reply.status in (404, 405):
            return MissingError(f"HTTP {reply.status}: {reply.message}")
        return RefusedError(f"HTTP {reply.status}: {reply.message}")


async def open_line(spec: str, config: ServersConfig, kind: str) -> Endpoint:
    """
    Find the server and its model.

    Args:
        spec: `SCHEME:URL#NAME`, or `URL#NAME`.
        config: How it is asked.
        kind: What the server is called in errors: "vLLM".

    Raises:
        ConfigError: The spec holds no URL.
        PrerequisiteError: The server cannot be reached, or wants a key.
        UnknownNameError: No model was named and it has none, or several.
    """
    address = Address.parse(spec)
    caller = Client(
        address=address,
        key=server_key(),
        concurrency=config.concurrency,
        timeout_s=config.timeout_s,
        deadline_s=config.deadline_s,
        retries=config.retries,
        backoff_s=config.backoff_s,
    )
    listed = await _listed(caller, kind)
    names = [str(m["id"]) for m in listed]
    model = address.model or (names[0] if len(names) == 1 else "")
    if not model:
        raise UnknownNameError(
            f"no model of the server at {address.base} was named.",
            f"it serves: {', '.join(names[:20]) or 'it lists none'}",
            f"name one: {address.base}#NAME",
        )
    return Endpoint(
        caller=caller, model=model, listed=next((m for m in listed if m["id"] == model), {})
    )


async def _listed(caller: Client, kind: str) -> list[Mapping[str, Any]]:
    address = caller.address
    try:
        reply = await exchange(
            address.url("/models"),
            key=caller.key,
            body=None,
            timeout_s=min(caller.timeout_s, LISTING_TIMEOUT_S),
            is_local=address.is_local,
        )
    except UnreachableError as error:
        raise PrerequisiteError(
            f"the {kind} server at {address.base} cannot be reached.",
            f"found: {error}",
            "start it, or check the URL",
        ) from error
    if reply.status in (401, 403):
        raise key_error(address, reply, has_key=bool(caller.key))
    body = reply.json() if reply.status == 200 else None
    listed = body.get("data") if isinstance(body, dict) else None
    return [m for m in listed or [] if isinstance(m, dict) and "id" in m]


def server_key() -> str:
    """
    The key in `RLVR_SERVER_KEY`, "" for none.

    Raises:
        PrerequisiteError: It cannot stand in a request.
    """
    key = os.environ.get(KEY, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise PrerequisiteError(
            f"{KEY} cannot be sent in a request.",
            "found: characters that no key has (a line break, a letter outside ASCII)",
            f"set {KEY} to the key alone",
        )
    return key
