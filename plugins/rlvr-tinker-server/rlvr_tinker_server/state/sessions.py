"""Sessions, and the models and samplers they own."""

from __future__ import annotations

import secrets
import time

from attrs import define, field

from rlvr_tinker_server.nets.adapters import Factors
from rlvr_tinker_server.nets.model import Model
from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.state.line import Line


@define(eq=False)
class Slot:
    """Weights that samplers look at: fixed ones, or a model's newest (`inflight`)."""

    factors: Factors | None  # None: forgotten, or not read yet from `path`
    base_model: str
    path: str | None = None
    used: float = field(factory=time.monotonic)  # when they were last needed


@define(eq=False)
class Trained:
    """A model of a session. `model` is None until it was made."""

    id: str
    base_model: str
    model: Model | None = None
    line: Line = field(factory=Line)
    inflight: Slot | None = None

    @property
    def made(self) -> Model:
        """Its model; `Refusal` where it is not made yet, or could not be."""
        if self.model is None:
            raise Refusal(f"the model {self.id} could not be made")
        return self.model


@define(eq=False)
class Session:
    """What one `ServiceClient` works in."""

    id: str
    seen: float = field(factory=time.monotonic)
    models: dict[str, Trained] = field(factory=dict)
    samplers: dict[str, Slot] = field(factory=dict)


class Sessions:
    """All sessions that live; one ends when nothing was heard of it for `timeout_s`."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._all: dict[str, Session] = {}
        self._ended: dict[str, str] = {}

    def open(self) -> Session:
        session = Session(id=f"session-{secrets.token_hex(8)}")
        self._all[session.id] = session
        return session

    def get(self, session_id: str) -> Session:
        """
        The session, which is alive from now on.

        Raises:
            Refusal: It has ended (410), or was never here (404).
        """
        session = self._all.get(session_id)
        if session_id in self._ended:
            raise Refusal(f"the session {session_id} has ended: {self._ended[session_id]}", 410)
        if session is None:
            raise Refusal(
                f"no session {session_id} on this server (it may have been started again); open a "
                "new one and go on from the last saved state",
                404,
            )
        session.seen = time.monotonic()
        return session

    def of_model(self, model_id: str) -> tuple[Session, Trained]:
        """A model and its session; `Refusal` where there is none."""
        session = self.get(model_id.partition(":train:")[0])
        trained = session.models.get(model_id)
        if trained is None:
            raise Refusal(f"no model {model_id} in this session", 404)
        return session, trained

    def of_sampler(self, sampler_id: str) -> tuple[Session, Slot]:
        """What a sampler looks at, and its session; `Refusal` where there is none."""
        session = self.get(sampler_id.partition(":sample:")[0])
        slot = session.samplers.get(sampler_id)
        if slot is None:
            raise Refusal(f"no sampler {sampler_id} in this session", 404)
        return session, slot

    def models(self) -> int:
        """The number of adapters that are held."""
        return sum(len(session.models) for session in self._all.values())

    def lines(self) -> list[tuple[Trained, Line]]:
        return [(t, t.line) for one in self._all.values() for t in one.models.values()]

    def samplers(self) -> list[Slot]:
        """The weights of all samplers; those that several samplers share appear several times."""
        # Copies: the worker's thread asks while the event loop may add.
        return [s for one in list(self._all.values()) for s in list(one.samplers.values())]

    def end(self, session_id: str, why: str) -> None:
        self.get(session_id)
        del self._all[session_id]
        self._ended[session_id] = why

    def silent(self) -> list[str]:
        """Sessions whose clients were silent for too long."""
        now = time.monotonic()
        return [s.id for s in self._all.values() if now - s.seen > self._timeout_s]
