"""One model on one server: its requests, their repetitions, and what a refusal means."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import structlog
from attrs import define, field

from rlvr import ExitCode, PrerequisiteError, RlvrError, UnknownNameError
from rlvr_servers.client.address import Address
from rlvr_servers.client.http import Reply, UnreachableError, exchange
from rlvr_servers.config import RequestOptions

KEY = "RLVR_SERVER_KEY"
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
LISTING_TIMEOUT_S = 30.0
LONGEST_PAUSE_S = 60.0
T = TypeVar("T")

log = structlog.get_logger(__name__)


class RequestError(RlvrError, RuntimeError):
    """One request got no answer; says nothing about the others."""

    exit_code = ExitCode.BACKEND


class RefusedError(RequestError):
    """The server read the request and refuses it, in these words."""


class MissingError(RequestError):
    """The server has no such path: it was started without it, or is another kind of server."""


class BrokenError(Exception):
    """An unusable reply, worth another try. `pause_s`: the pause that the server asks for."""

    def __init__(self, reason: str, pause_s: float = 0.0) -> None:
        super().__init__(reason)
        self.pause_s = pause_s


@define(kw_only=True)
class Endpoint:
    """
    A server and one of its models; asked `config.concurrency` requests at a time.

    Attributes:
        kind: What the server is called in errors: "vLLM".
        config: Concurrency, timeout, repetitions and pauses.
        deadline_s: Of a request with all its tries and pauses, from its first try on; 0: none.
        model: The model's name on the server.
        listed: What `/v1/models` says of each of the server's models, by name.
        repeated: Requests that were sent again.
    """

    address: Address
    kind: str
    config: RequestOptions
    key: str = field(default="", repr=False)
    deadline_s: float = 0.0
    model: str = ""
    listed: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    repeated: int = field(default=0, init=False)
    _slots: asyncio.Semaphore = field(init=False)
    _failed_in_a_row: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.config.concurrency)

    @classmethod
    async def open(
        cls, spec: str, config: RequestOptions, kind: str, deadline_s: float = 0.0
    ) -> Endpoint:
        """
        Find the server of a model spec (`SCHEME:URL#NAME`, or `URL#NAME`) and its model.

        Raises:
            ConfigError: The spec holds no URL.
            PrerequisiteError: The server cannot be reached, or wants a key.
            UnknownNameError: No model was named and it has none, or several.
        """
        address = Address.parse(spec)
        found = cls(address=address, kind=kind, config=config, key=_key(), deadline_s=deadline_s)
        found.listed = await found._list()
        found.model = address.model or (next(iter(found.listed)) if len(found.listed) == 1 else "")
        if not found.model:
            raise UnknownNameError(
                f"no model of the server at {address.base} was named.",
                f"it serves: {found._served}",
                f"name one after the URL: {address.base}#NAME",
            )
        return found

    async def ask(
        self,
        path: str,
        body: Mapping[str, Any] | None,
        read: Callable[[Any], T],
        *,
        retries: int | None = None,
    ) -> T:
        """
        What `read` makes of the JSON that comes back; it may raise `BrokenError`.

        Args:
            path: As in `Address.url`.
            body: Sent as JSON (POST); None: GET.
            read: Reads the answer.
            retries: Other than those of `config`.

        Raises:
            RequestError: No answer after all repetitions; `RefusedError`, `MissingError`.
            PrerequisiteError: The server wants a (another) key.
            UnknownNameError: It has no such model.
        """
        most = self.config.retries if retries is None else retries
        async with self._slots:
            # after many failures the server counts as gone: each request gets one try
            tries = 1 if self._failed_in_a_row >= 3 * self.config.concurrency else 1 + most
            end = time.monotonic() + (self.deadline_s or math.inf)
            for number in itertools.count(1):
                try:
                    found = read((await self._once(path, body, end)).json())
                    break
                except BrokenError as error:
                    pause_s = self._pause_s(number, error.pause_s)
                    is_late = time.monotonic() + pause_s >= end
                    if number == tries or is_late:
                        self._failed_in_a_row += 1
                        why = f"; the deadline is {self.deadline_s:g} s" if is_late else ""
                        raise RequestError(f"{error} ({number} tries{why})") from error
                    log.debug("request_repeated", reason=str(error), number=number)
                    self.repeated += 1
                    await asyncio.sleep(pause_s)
            self._failed_in_a_row = 0
            return found

    def unknown_model(self, found: str) -> UnknownNameError:
        """The error for a model that the server does not have, or for a wrong path."""
        return UnknownNameError(
            f"model '{self.model}' of the server at {self.address.base} was asked for.",
            f"found: {found}; it serves: {self._served}",
            f"name one of them after the URL, {self.address.base}#NAME, or check the URL's path",
        )

    def _pause_s(self, number: int, asked_s: float) -> float:
        doubled = self.config.backoff_s * 2 ** (number - 1) * random.uniform(0.75, 1.25)
        return min(max(doubled, asked_s), LONGEST_PAUSE_S)

    async def _once(self, path: str, body: Mapping[str, Any] | None, end: float) -> Reply:
        timeout_s = max(min(self.config.timeout_s, end - time.monotonic()), 0.001)
        try:
            reply = await self._exchange(path, body, timeout_s)
        except UnreachableError as error:
            raise BrokenError(f"the server did not answer: {error}") from error
        said = f"HTTP {reply.status}: {reply.message}"
        if reply.status == 200:
            return reply
        if reply.status in PASSING:
            raise BrokenError(said, reply.retry_after_s)
        if reply.status in (401, 403):
            raise self._key_error(said)
        if reply.status not in (404, 405):
            raise RefusedError(said)
        raise self.unknown_model(said) if "model" in reply.message.lower() else MissingError(said)

    async def _exchange(self, path: str, body: Mapping[str, Any] | None, timeout_s: float) -> Reply:
        url, is_local = self.address.url(path), self.address.is_local
        return await exchange(url, key=self.key, body=body, timeout_s=timeout_s, is_local=is_local)

    async def _list(self) -> dict[str, Mapping[str, Any]]:
        """The models by name; {} where the server does not list them."""
        timeout_s = min(self.config.timeout_s, LISTING_TIMEOUT_S)
        try:
            reply = await self._exchange("/v1/models", None, timeout_s)
        except UnreachableError as error:
            raise PrerequisiteError(
                f"the {self.kind} server at {self.address.base} cannot be reached.",
                f"found: {error}",
                "start it (vllm serve NAME; llama-server -m FILE), or check the URL",
            ) from error
        if reply.status in (401, 403):
            raise self._key_error(f"HTTP {reply.status}: {reply.message}")
        body = reply.json() if reply.status == 200 else None
        listed = body.get("data") if isinstance(body, dict) else None
        models: Sequence[Any] = listed if isinstance(listed, list) else ()
        return {str(m["id"]): m for m in models if isinstance(m, dict) and "id" in m}

    @property
    def _served(self) -> str:
        return ", ".join(list(self.listed)[:20]) or "it lists none"

    def _key_error(self, said: str) -> PrerequisiteError:
        return PrerequisiteError(
            f"the server at {self.address.base} wants a key.",
            f"found: {said}",
            f"{KEY} holds a key that it does not take" if self.key else f"export {KEY}=...",
        )


def _key() -> str:
    """The key in `RLVR_SERVER_KEY`, "" for none."""
    key = os.environ.get(KEY, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise PrerequisiteError(
            f"{KEY} cannot be sent in a request.",
            "found: characters that no key has (a line break, a letter outside ASCII)",
            f"set {KEY} to the key alone",
        )
    return key
