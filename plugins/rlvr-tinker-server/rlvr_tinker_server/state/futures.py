"""Answers that are not there yet: an accepted request has an id, its result is fetched by it.

A result can be fetched again, for an answer may be lost on its way; those fetched long ago are
forgotten.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import structlog
from attrs import define, field, frozen

from rlvr_tinker_server.refusal import Refusal

log = structlog.get_logger(__name__)

_KEPT = 2000  # results that were fetched already
JSON, PROTO = "application/json", "application/x-protobuf"


@frozen(kw_only=True)
class Answer:
    """A body and its content type."""

    body: bytes
    media: str = JSON

    @classmethod
    def json(cls, values: Mapping[str, Any]) -> Answer:
        return cls(body=json.dumps(values).encode())

    @classmethod
    def failure(cls, error: BaseException) -> Answer:
        """A failed request: the client's mistake where it is a `Refusal`, else the server's."""
        if isinstance(error, Refusal):
            return cls.json({"error": str(error), "category": "user"})
        message = f"the server failed ({type(error).__name__}); its log says where"
        return cls.json({"error": message, "category": "server"})


@define(eq=False)
class Future:
    """One accepted request."""

    id: str  # what the client fetches it by
    session: str  # whose it is
    answer: Answer | None = None  # the result, once it is there
    is_cancellable: bool = False  # may be left undone when the client does not want it any more
    is_cancelled: bool = False  # nobody wants it any more
    fingerprint: bytes = b""  # of the request, to know it again
    extra: Mapping[str, Any] = field(factory=dict)  # what the acceptance tells besides the id
    done: asyncio.Event = field(factory=asyncio.Event)

    def finish(self, answer: Answer) -> None:
        """Set the result; call it in the event loop."""
        if self.answer is None:
            self.answer = answer
            self.done.set()

    def fail(self, error: BaseException) -> None:
        """Set a failure; a bug is logged with its traceback."""
        if not isinstance(error, Refusal):
            log.error("request_failed", request=self.id, exc_info=error)
        self.finish(Answer.failure(error))


class Futures:
    """All futures, by id."""

    def __init__(self) -> None:
        self._open: dict[str, Future] = {}
        self._fetched: OrderedDict[str, Future] = OrderedDict()

    def add(self, future: Future) -> Future:
        self._open[future.id] = future
        return future

    def get(self, request_id: str) -> Future | None:
        return self._open.get(request_id) or self._fetched.get(request_id)

    async def fetch(self, request_id: str, wait_s: float) -> Answer | None:
        """
        The result, waited for; None where it is not there yet.

        Raises:
            Refusal: Nobody made such a request, or it is long forgotten.
        """
        future = self.get(request_id)
        if future is None:
            raise Refusal(
                f"no request {request_id} on this server (it may have been started again, or the "
                "session has ended); go on from the last saved state",
                404,
            )
        if future.answer is None and wait_s > 0:
            try:
                await asyncio.wait_for(future.done.wait(), wait_s)
            except TimeoutError:
                return None
        if future.answer is not None and self._open.pop(request_id, None) is not None:
            self._fetched[request_id] = future
            if len(self._fetched) > _KEPT:
                self._fetched.popitem(last=False)
        return future.answer

    def drop(self, session: str) -> None:
        """Forget a session's futures; waiting clients are told that the session has ended."""
        ended = Answer.json({"error": f"the session {session} has ended", "category": "server"})
        for kept in (self._open, self._fetched):
            for future in [one for one in kept.values() if one.session == session]:
                future.is_cancelled = True
                future.finish(ended)
                del kept[future.id]
