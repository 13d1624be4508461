"""The state that all requests work on, and how they are queued. No HTTP here.

All methods run in the event loop; what touches weights goes to the worker as a job. What can be
asked is beside it: `models`, `training`, `saving`, `samplers`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import structlog
from attrs import field, frozen
from tinker import types

from rlvr_tinker_server.limits import Limits
from rlvr_tinker_server.nets.base import Base
from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.state.checkpoints import About, Checkpoints
from rlvr_tinker_server.state.futures import Answer, Future, Futures
from rlvr_tinker_server.state.line import Numbered, fingerprint
from rlvr_tinker_server.state.sessions import Session, Sessions, Trained
from rlvr_tinker_server.state.worker import Job, Worker

log = structlog.get_logger(__name__)


@frozen(kw_only=True, eq=False)
class Service:
    """The server's state: the model, where weights are saved, and how much it takes on."""

    base: Base
    checkpoints: Checkpoints
    limits: Limits = field(factory=Limits)
    futures: Futures = field(factory=Futures)
    worker: Worker = field(factory=Worker)
    sessions: Sessions = field()

    @sessions.default
    def _sessions(self) -> Sessions:
        return Sessions(self.limits.session_timeout_s)

    def create_session(self, request: types.CreateSessionRequest) -> Session:
        session = self.sessions.open()
        log.info("session_opened", session=session.id, sdk=request.sdk_version)
        return session

    def end_session(self, session_id: str, why: str) -> None:
        """Free its adapters and samplers; clients that wait for a result are told."""
        self.sessions.end(session_id, why)
        self.futures.drop(session_id)
        log.info("session_ended", session=session_id, why=why)

    async def end_silent_sessions(self) -> None:
        """For ever: end the sessions of clients that went away."""
        while True:
            await asyncio.sleep(min(5.0, self.limits.session_timeout_s / 4))
            for session_id in self.sessions.silent():
                self.end_session(session_id, "nothing was heard of its client")

    def sent_before(self, request_id: str, body: bytes) -> Future | None:
        """
        The future of a request that was sent already, or None.

        `Refusal`: another request had this id.
        """
        found = self.futures.get(request_id)
        if found is not None and found.fingerprint != fingerprint(body):
            raise Refusal(
                f"the request {request_id} was sent before, with other contents: do two clients "
                "work in one session?"
            )
        return found

    def start(
        self, request_id: str, session: Session, body: bytes, work: Callable[[], Answer]
    ) -> Future:
        """Do the work as soon as the worker is free."""
        future = self.accept(request_id, session, body)
        self.worker.add(Job.alone(future, work))
        return future

    def accept(self, request_id: str, session: Session, body: bytes, **settings: Any) -> Future:
        """A future by which the request's result is fetched."""
        return self.futures.add(
            Future(id=request_id, session=session.id, fingerprint=fingerprint(body), **settings)
        )

    def in_line(
        self, model_id: str, number: int | None, body: bytes, work: Callable[[Trained], Answer]
    ) -> Future:
        """
        Do the work when it is the request's turn.

        Where a request before it was lost, it fails; so does the next update, whose gradients may
        lack a pass.

        Raises:
            Refusal: There is no such model, or the number is another request's.
        """
        session, trained = self.sessions.of_model(model_id)
        if number is None:
            raise Refusal("the request has no seq_id")
        request_id = f"{model_id}:{number}"
        if trained.line.knows(number, body):
            return self.futures.get(request_id) or Future(id=request_id, session=session.id)
        future = self.accept(request_id, session, body)

        def start(lost: Refusal | None) -> None:
            def turn() -> Answer:
                return work(trained) if lost is None else _refuse(trained, lost, breaks=True)

            self.worker.add(Job.alone(future, turn))

        trained.line.enter(number, body, start)
        return future

    def use_up(self, numbered: Numbered, body: bytes, refusal: Refusal) -> None:
        """
        Count the number of a request that is refused, so that none waits for it.

        The request fails when its turn comes; a pass then makes the next update fail too.
        """
        with contextlib.suppress(Refusal):  # no such model, or no number that could be used
            self.in_line(
                numbered.model_id,
                numbered.number,
                body,
                lambda trained: _refuse(trained, refusal, breaks=numbered.is_pass),
            )

    async def fail_gaps(self) -> None:
        """For ever: fail requests that wait for one that does not come."""
        while True:
            await asyncio.sleep(min(1.0, self.limits.gap_s / 4))
            for trained, line in self.sessions.lines():
                if line.give_up(self.limits.gap_s):
                    log.warning("request_lost", model=trained.id)

    def cancel(self, request_id: str) -> None:
        """
        Cancel a sampling request.

        Requests of training are done all the same: an update without one of its passes would be
        another update.
        """
        future = self.futures.get(request_id)
        if future is not None and future.is_cancellable:
            future.is_cancelled = True
            future.finish(Answer.failure(Refusal("the request was cancelled")))

    def check_base(self, name: str) -> None:
        """Refuse (`Refusal`) another model than the server's."""
        if not self.base.answers_to(name):
            raise Refusal(f"no base model {name!r} on this server; there is: {self.base.name}")

    def about(self, path: str) -> About:
        """
        What a checkpoint is.

        `Refusal` where there is none, or it belongs to another base model.
        """
        about = self.checkpoints.about(path)
        if about.base != self.base.digest:
            raise Refusal(
                f"{path} was saved for the base model {about.base_model!r}; this server has "
                f"{self.base.name!r}, whose weights are others"
            )
        return about


def _refuse(trained: Trained, refusal: Refusal, *, breaks: bool) -> Answer:
    """Fail in the worker, in the place of the request's work."""
    if breaks and trained.model is not None:
        trained.model.broken = str(refusal)
    raise refusal
