"""Requests to one server: bounded, patient with what passes, quick to say what stays."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import structlog
from attrs import define, field

from rlvr import ExitCode, PrerequisiteError, RlvrError
from rlvr_servers.client.address import Address
from rlvr_servers.client.http import Reply, UnreachableError, exchange

KEY = "RLVR_SERVER_KEY"
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
LONGEST_PAUSE_S = 60.0
T = TypeVar("T")

log = structlog.get_logger(__name__)


class RequestError(RlvrError, RuntimeError):
    """One request got no answer; says nothing about the others."""

    exit_code = ExitCode.BACKEND


class BrokenError(Exception):
    """A reply that is no answer, worth another try. `pause_s`: how long the server asks to wait."""

    def __init__(self, reason: str, pause_s: float = 0.0) -> None:
        super().__init__(reason)
        self.pause_s = pause_s


@define(kw_only=True)
class Client:
    """
    Asks a server, `concurrency` requests at a time.

    Attributes:
        timeout_s: Of one try.
        deadline_s: Of a request with all its tries and pauses, from its first try on; 0: none.
        retries: Repetitions after 408, 429, 5xx, no answer in time and answers that are none.
        backoff_s: Pause before the first repetition; doubles, with a quarter of chance.
    """

    address: Address
    key: str = field(default="", repr=False)
    concurrency: int = 16
    timeout_s: float = 600.0
    deadline_s: float = 0.0
    retries: int = 5
    backoff_s: float = 1.0
    repeated: int = field(default=0, init=False)
    _slots: asyncio.Semaphore = field(init=False)
    _failed_in_a_row: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.concurrency)

    async def call(
        self,
        url: str,
        body: Mapping[str, Any] | None,
        read: Callable[[Reply], T],
        refuse: Callable[[Reply], Exception],
        *,
        retries: int | None = None,
    ) -> T:
        """
        What `read` makes of the server's answer (status 200); it may raise `BrokenError`.

        Args:
            url: Whole URL.
            body: Sent as JSON (POST); None: GET.
            read: Reads the answer.
            refuse: The error of a refusal: another status that would not pass.
            retries: Other than the caller's.

        Raises:
            RequestError: No answer, after all repetitions.
            Exception: What `refuse` gave.
        """
        async with self._slots:
            # a server that has gone away is not waited for a thousand times
            is_gone = self._failed_in_a_row >= 3 * self.concurrency
            tries = 1 if is_gone else 1 + (self.retries if retries is None else retries)
            end = time.monotonic() + self.deadline_s if self.deadline_s else float("inf")
            for number in range(1, tries + 1):
                try:
                    found = await self._once(url, body, read, refuse, end)
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
                else:
                    self._failed_in_a_row = 0
                    return found
        raise AssertionError("unreachable: the last try returns or raises")

    def _pause_s(self, number: int, asked_s: float) -> float:
        doubled = self.backoff_s * 2 ** (number - 1) * random.uniform(0.75, 1.25)
        return min(max(doubled, asked_s), LONGEST_PAUSE_S)

    async def _once(
        self,
        url: str,
        body: Mapping[str, Any] | None,
        read: Callable[[Reply], T],
        refuse: Callable[[Reply], Exception],
        end: float,
    ) -> T:
        try:
            reply = await exchange(
                url,
                key=self.key,
                body=body,
                timeout_s=max(min(self.timeout_s, end - time.monotonic()), 0.001),
                is_local=self.address.is_local,
            )
        except UnreachableError as error:
            raise BrokenError(f"the server did not answer: {error}") from error
        if reply.status in PASSING:
            raise BrokenError(f"HTTP {reply.status}: {reply.message}", reply.retry_after_s)
        if reply.status != 200:
            raise refuse(reply)
        return read(reply)


def key_error(address: Address, reply: Reply, *, has_key: bool) -> PrerequisiteError:
    """The error for a server that wants a key, or another one."""
    found = f"HTTP {reply.status}: {reply.message}"
    do = f"{KEY} holds a key that it does not take" if has_key else f"export {KEY}=..."
    return PrerequisiteError(f"the server at {address.base} wants a key.", f"found: {found}", do)
