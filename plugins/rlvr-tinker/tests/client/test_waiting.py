"""Deadlines, and what the service's answers say meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import Future
from typing import Any

import httpx
import pytest

from rlvr import PrerequisiteError, RlvrError
from rlvr_tinker.service.deadlines import in_thread, within
from rlvr_tinker.service.errors import LostError, RefusedError, explained
from rlvr_tinker.service.health import MOST_FAILURES, Health


class Asked:
    """A request as the SDK gives it."""

    def __init__(self) -> None:
        self.inner: Future[Any] = Future()

    def future(self) -> Future[Any]:
        return self.inner


def answered(status: int) -> None:
    """What httpx writes to its log for each answer."""
    logging.getLogger("httpx").info(
        'HTTP Request: %s %s "%s %d %s"', "POST", "http://s/api", "HTTP/1.1", status, "X"
    )


def wait(request: Asked, health: Health, limit_s: float = 0.3) -> Any:
    return asyncio.run(within(request, "it was asked", limit_s=limit_s, health=health))


def test_httpx_still_writes_the_line_that_is_read() -> None:
    """A real answer to a real request is counted: the format is httpx's own and may change."""
    (health,) = counted(Health())

    assert health.failures == 1
    assert health.lately == (503,)


def test_everyone_who_watches_counts() -> None:
    """A student and its teacher, both at the service: neither takes lines from the other."""
    one, other, elsewhere = counted(Health(), Health(), Health("http://elsewhere/"))

    assert [one.failures, other.failures, elsewhere.failures] == [1, 1, 0]


def counted(*watchers: Health) -> tuple[Health, ...]:
    """All of them, after one answer 503."""
    for health in watchers:
        health.start()
    try:
        transport = httpx.MockTransport(lambda _request: httpx.Response(503))
        with httpx.Client(transport=transport) as client:
            client.get("http://localhost/")
    finally:
        for health in watchers:
            health.stop()
    return watchers


def test_the_log_is_as_before_afterwards() -> None:
    """Watching changes nothing of what a person sees, and leaves no trace."""
    logger = logging.getLogger("httpx")
    level, filters = logger.level, list(logger.filters)
    one, other = Health("http://s/"), Health("http://s/")

    one.start()
    other.start()
    assert logger.isEnabledFor(logging.INFO)
    one.stop()
    other.stop()

    assert (logger.level, logger.filters) == (level, filters)


def test_a_request_without_an_answer_ends() -> None:
    """And is cancelled, so that the SDK stops to repeat it."""
    request, health = Asked(), Health("http://s/")
    begun = time.monotonic()

    with pytest.raises(LostError, match=r"nothing was finished in 0\.3 s"):
        wait(request, health)

    assert time.monotonic() - begun < 3
    assert request.inner.cancelled()


@pytest.mark.parametrize(
    ("status", "word"),
    [(402, "billing"), (408, "not ready"), (409, "same session"), (429, "limits requests")],
)
def test_what_the_service_answered_meanwhile_is_said(status: int, word: str) -> None:
    """The SDK waits through these without a word."""
    health = Health("http://s/")
    health.start()
    try:
        answered(status)
        with pytest.raises(LostError, match=word):
            wait(Asked(), health, 0.1)
    finally:
        health.stop()


def test_failures_in_a_row_end_the_wait_early() -> None:
    """The SDK repeats a 5xx at once and for ever: fifty are enough."""
    health = Health("http://s/")
    health.start()
    try:
        for _ in range(MOST_FAILURES):
            answered(500)
        with pytest.raises(LostError, match="again and again"):
            wait(Asked(), health, 60.0)
        answered(200)
        assert not health.is_failing
    finally:
        health.stop()


def test_progress_elsewhere_gives_it_longer() -> None:
    """A queue that moves is no stall: the limit counts from what was finished last."""
    slow, health = Asked(), Health("http://s/")

    async def body() -> Any:
        async def others() -> None:
            for _ in range(4):
                await asyncio.sleep(0.2)
                health.finished()
            slow.inner.set_result("done")

        task = asyncio.create_task(others())
        try:
            return await within(slow, "it was asked", limit_s=0.4, health=health)
        finally:
            task.cancel()

    assert asyncio.run(body()) == "done"


def test_a_blocking_call_is_given_up_too() -> None:
    """Its thread holds neither the run nor the end of the process."""
    with pytest.raises(RlvrError, match="nothing was finished"):
        asyncio.run(
            in_thread(
                lambda: time.sleep(5), "it was asked", limit_s=0.2, health=Health("http://s/")
            )
        )


def test_an_error_in_a_blocking_call_is_told() -> None:
    """As one of ours, with the SDK's as its cause."""

    def work() -> None:
        raise httpx.ConnectError("no route")

    with pytest.raises(LostError, match="no route") as error:
        asyncio.run(in_thread(work, "it was asked", limit_s=5.0, health=Health("http://s/")))
    assert isinstance(error.value.__cause__, httpx.ConnectError)


class StatusError(Exception):
    """An error of the SDK with a status."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"Error code: {status}")
        self.status_code, self.body = status, {"detail": detail}


@pytest.mark.parametrize(
    ("status", "is_running", "kind", "code"),
    [
        (400, True, RefusedError, 6),
        (401, False, PrerequisiteError, 4),
        (401, True, PrerequisiteError, 4),
        (402, False, PrerequisiteError, 4),
        (402, True, LostError, 6),
        (403, False, PrerequisiteError, 4),
        (404, True, LostError, 6),
        (404, False, RefusedError, 6),
        (408, True, LostError, 6),
        (409, True, LostError, 6),
        (410, True, LostError, 6),
        (422, True, RefusedError, 6),
        (429, True, LostError, 6),
        (500, True, LostError, 6),
    ],
)
def test_each_status_has_its_meaning(
    status: int, is_running: bool, kind: type[RlvrError], code: int
) -> None:
    """Also where the SDK hides the answer behind an error of its own; the words are told."""
    hidden = ValueError("Error retrieving result")
    hidden.__cause__ = StatusError(status, "the service's own words")

    found = explained(hidden, "it was asked", is_running=is_running)

    assert type(found) is kind
    assert int(found.exit_code) == code
    assert "the service's own words" in str(found)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Model m1 not loaded (likely stale request from previous server)", LostError),
        ("the session session-1 has ended", LostError),
        ("rank 4096 was asked for", RefusedError),
    ],
)
def test_what_is_gone_is_lost_whoever_is_blamed(words: str, kind: type[RlvrError]) -> None:
    """A server that was started again calls a request to its old self a mistake."""
    assert type(explained(StatusError(400, words), "it was asked")) is kind
    assert (
        type(explained(StatusError(400, words), "it was asked", is_running=False)) is RefusedError
    )


def test_another_protocol_is_told_apart() -> None:
    """What the SDK says of an answer in an older format."""
    error = ValueError("Server returned a JSON payload ... The server predates proto response")

    found = explained(error, "it was asked")

    assert isinstance(found, PrerequisiteError)
    assert "protocol" in str(found)


def test_a_key_that_expires_is_no_end_of_a_run() -> None:
    """Exit 4, and that the run goes on with another key; before a run nothing can be resumed."""
    error = StatusError(401, "the key has expired")

    assert "--resume" in str(explained(error, "it was asked"))
    assert "--resume" not in str(explained(error, "it was asked", is_running=False))


def test_a_key_is_never_shown() -> None:
    """Not even the one that is wrong."""
    found = explained(StatusError(401, "bad key"), "it was asked", is_running=False)

    assert "TINKER_API_KEY" in str(found)
    assert "tml-" in str(found)
