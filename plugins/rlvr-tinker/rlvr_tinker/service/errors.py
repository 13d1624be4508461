"""Turn an error of the SDK into one of rlvr's errors, with advice and an exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rlvr import BackendError, PrerequisiteError, RlvrError, explain

KEY = "TINKER_API_KEY"
URL = "TINKER_BASE_URL"


class LostError(BackendError):
    """
    A request of a training or sampling client was not finished: what the service did is unknown.

    The client cannot be used any more; another one from the last saved state can.
    """


class RefusedError(BackendError):
    """The service says that the request itself is wrong; repeating it would not help."""


_GONE = re.compile(r"\b(stale request|not loaded|session \S+ has ended)\b", re.IGNORECASE)
_NOT_FINITE = re.compile(r"\b(is|are|not) (nan|-?inf|finite)\b", re.IGNORECASE)

_OTHER_PROTOCOL = (
    "predates proto",
    "Proto deserialization failed",
    "always carry sample_sequence_ids",
    "it may predate this feature",
    "invalid for expected schema",
)

_ADVICE = {
    402: ("the account has a billing problem (402)", "settle it in the console, then --resume"),
    408: ("the service was not ready (408)", "wait a little, then --resume"),
    409: (
        "another client sends requests in the same session (409)",
        "let one process use a session: start other runs by themselves",
    ),
    410: ("the service has dropped the session (410)", "go on with --resume"),
    429: ("the service limits requests (429)", "run fewer at a time, or wait, then --resume"),
}


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error and all that caused it."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or at.__context__


def status_of(error: BaseException) -> int | None:
    """The HTTP status behind an error; None if there was no answer."""
    for one in chain(error):
        if isinstance(status := getattr(one, "status_code", None), int):
            return status
    return None


def words_of(error: BaseException) -> str:
    """What the service itself said, in one line."""
    for one in chain(error):
        body = getattr(one, "body", None)
        if isinstance(body, dict) and (detail := body.get("detail") or body.get("error")):
            return _line(str(detail))
    return _line(str(error)) or type(error).__name__


def explained(error: BaseException, doing: str, *, is_running: bool = True) -> RlvrError:
    """
    One of rlvr's errors for an error of the SDK.

    Args:
        error: What the SDK raised.
        doing: What was asked of the service, as a clause: "an update was sent".
        is_running: False before a run has begun: what is missing then is a prerequisite.
    """
    if isinstance(error, RlvrError):
        return error
    status, words = status_of(error), words_of(error)
    every = list(chain(error))
    if _is_protocol(error):
        return protocol_error(words)
    is_keyless = any("api_key" in str(one) or "TINKER_CREDENTIAL" in str(one) for one in every)
    if status in (401, 403) or is_keyless:
        return key_error(words, is_running=is_running)
    if status in _ADVICE:
        found, do = _ADVICE[status]
        kind: type[RlvrError] = LostError if is_running else PrerequisiteError
        return kind(explain(f"{doing}.", f"found: {found}: {words}", do))
    is_missing = status == 404 and not is_running  # later it is the session that is gone
    is_users = any(str(getattr(one, "category", "")) == "user" for one in every)
    is_blamed = status in (400, 413, 422) or is_users or is_missing
    if is_blamed and not (is_running and _GONE.search(words)):
        return RefusedError(f"{doing}.", f"the service refuses it: {words}", "change what it names")
    if not is_running and status is None:
        return unreachable_error(words)
    return LostError(f"{doing}.", f"found: {words}", "go on with --resume")


def is_not_finite(error: BaseException) -> bool:
    """Whether the service refused to compute with numbers that are not finite."""
    return bool(_NOT_FINITE.search(str(error)))


def _is_protocol(error: BaseException) -> bool:
    """Whether the server speaks another version of the protocol than the SDK."""
    every = list(chain(error))
    texts = " ".join(map(str, every))
    if any(sign in texts for sign in _OTHER_PROTOCOL):
        return True
    if any(type(one).__name__ == "APIResponseValidationError" for one in every):
        return True
    if status_of(error) not in (400, 404, 422, 426):
        return False
    requests = (getattr(one, "request", None) for one in every)  # the SDK's first one:
    return any(str(getattr(r, "url", "")).endswith("/client/config") for r in requests)


def key_error(words: str, *, is_running: bool = False) -> PrerequisiteError:
    """The error for a missing, refused or expired key; it never shows the key."""
    return PrerequisiteError(
        "the Tinker service wants a key.",
        f"found: {words}",
        f"set {KEY} to a key of yours (it begins with tml-); for `rlvr tinker-server` to the "
        f"one that it printed{', then go on with --resume' if is_running else ''}",
    )


def unreachable_error(words: str, url: str = "") -> PrerequisiteError:
    """The error for a service that cannot be reached."""
    return PrerequisiteError(
        f"the Tinker service{f' at {url}' if url else ''} cannot be reached.",
        f"found: {words}",
        f"check {URL} and the network, or start one here: rlvr tinker-server --model SPEC",
    )


def protocol_error(words: str) -> PrerequisiteError:
    """The error for a server with another version of the protocol."""
    from importlib.metadata import version

    return PrerequisiteError(
        "the server does not speak the protocol of this SDK.",
        f"found: tinker {version('tinker')} here; {words}",
        "use a server of the same version (rlvr tinker-server is), or another SDK",
    )


def late_error(doing: str, limit_s: float, lately: Sequence[int]) -> LostError:
    """The error for a missed deadline, with the statuses that the service answered meanwhile."""
    found = f"nothing was finished in {limit_s:g} s"
    do = "go on with --resume; tinker.timeout_s gives it longer"
    if lately:
        last = lately[-1]
        why, better = _ADVICE.get(last, (f"the service fails ({last})", do))
        found += f"; {why}, {lately.count(last)} of the last {len(lately)} failed answers"
        do = better
    return LostError(f"{doing}.", f"found: {found}", do)


def failing_error(doing: str, lately: Sequence[int]) -> LostError:
    """The error for a service that answers every request with a 5xx."""
    last = lately[-1] if lately else 500
    return LostError(
        f"{doing}.",
        f"found: the service fails again and again (HTTP {last})",
        "look at its log, then go on with --resume",
    )


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else line[:297] + "..."
