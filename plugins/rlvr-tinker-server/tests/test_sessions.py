"""Order of a model's requests, and who may use what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.state.line import Line
from rlvr_tinker_server.state.sessions import Sessions, Trained


@given(st.permutations(range(1, 9)))
def test_requests_are_done_in_the_order_of_their_numbers(order):
    """However they arrive, each starts when all with lower numbers have."""
    line, started = Line(), []
    for i, number in enumerate(order):
        assert not line.knows(number, b"%d" % number)
        line.enter(number, b"%d" % number, lambda _, number=number: started.append(number))
        arrived = set(order[: i + 1])
        ready = next(n for n in range(1, 10) if n not in arrived)
        assert started == list(range(1, ready))
    assert line.knows(3, b"3")


def test_a_number_that_was_used_is_not_used_again():
    """The same request is known; another one under its number is two clients' mistake."""
    line = Line()
    line.enter(1, b"one", lambda _: None)

    assert line.knows(1, b"one")
    with pytest.raises(Refusal, match="do two clients work on it"):
        line.knows(1, b"other")
    for number in (0, -1, 1_000_000):
        with pytest.raises(Refusal, match="the next one is 2"):
            line.knows(number, b"x")


def test_an_ended_session_is_told_from_an_unknown_one():
    """410 for what has ended (the SDK's heartbeat stops), 404 for what was never here."""
    sessions = Sessions(60)
    session = sessions.open()
    sessions.end(session.id, "its client closed it")

    with pytest.raises(Refusal, match="has ended: its client closed it") as ended:
        sessions.get(session.id)
    assert ended.value.status == 410
    with pytest.raises(Refusal, match="go on from the last saved state") as unknown:
        sessions.get("session-0")
    assert unknown.value.status == 404


def test_silent_sessions_are_found_and_their_adapters_freed(monkeypatch):
    """A client that went away does not hold its adapters for ever; a heartbeat keeps a session."""
    now = [100.0]
    monkeypatch.setattr("rlvr_tinker_server.state.sessions.time.monotonic", lambda: now[0])
    sessions = Sessions(60)
    gone, kept = sessions.open(), sessions.open()
    gone.models["m"] = Trained(id="m", base_model="b")
    gone.seen = kept.seen = 100.0
    now[0] = 150.0
    sessions.get(kept.id)
    now[0] = 161.0

    assert sessions.silent() == [gone.id]
    assert sessions.models() == 1
    sessions.end(gone.id, "silence")
    assert (sessions.models(), sessions.silent()) == (0, [])


@pytest.mark.parametrize("which", ["of_model", "of_sampler"])
def test_ids_of_nothing_are_refused(which):
    """Ids that no session has are 404, whatever they look like."""
    sessions = Sessions(60)
    session = sessions.open()
    for found in ("", "x", ":train:0", f"{session.id}:train:0", f"{session.id}:sample:1"):
        with pytest.raises(Refusal) as refusal:
            getattr(sessions, which)(found)
        assert refusal.value.status == 404
