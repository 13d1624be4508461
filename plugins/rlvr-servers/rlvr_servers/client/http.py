"""One HTTP exchange in a thread of its own: the standard library blocks, the event loop must not.

Threads are daemons, so that a server that never answers cannot hold up Ctrl-C. The connection of a
request that nobody waits for any more is cut: servers then stop drawing for it.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from attrs import field, frozen

MOST_BYTES = 256 << 20
"""Of a reply: 64 likeliest tokens at 32,000 positions are about half of it."""
T = TypeVar("T")


class UnreachableError(OSError):
    """Nothing came back: refused, reset, cut off, or no answer in time."""


@frozen(kw_only=True)
class Reply:
    """What the server said. `retry_after_s` is 0 where it did not ask for a pause."""

    status: int
    text: str = field(repr=False)
    retry_after_s: float = 0.0

    def json(self) -> Any:
        """The body as JSON, None where it is none."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None

    @property
    def message(self) -> str:
        """What the server gives as the error, in one line of at most 300 characters."""
        body = self.json()
        found: Any = body
        if isinstance(body, Mapping):
            found = body.get("error", body.get("message", body.get("detail", body)))
        if isinstance(found, Mapping):
            found = found.get("message", found)
        text = self.text if found is None else str(found)
        return " ".join(text.split())[:300] or f"HTTP {self.status}"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected request would carry the key to another host."""

    def redirect_request(self, *_args: Any) -> None:
        return None


class _Wire:
    """The connection of one request, which another thread may cut."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def cut(self) -> None:
        """End what reads from it; nothing where the reply has been read."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def handlers(self) -> list[urllib.request.BaseHandler]:
        """How `urllib` opens connections that this one knows of."""
        wire = self

        class Plain(http.client.HTTPConnection):
            def connect(self) -> None:
                super().connect()
                wire._socket = self.sock

        class Secure(http.client.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                wire._socket = self.sock

        class OpenPlain(urllib.request.HTTPHandler):
            def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
                return self.do_open(Plain, request)

        class OpenSecure(urllib.request.HTTPSHandler):
            def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
                return self.do_open(Secure, request)

        return [OpenPlain(), OpenSecure()]


async def exchange(
    url: str,
    *,
    key: str,
    body: Mapping[str, Any] | None,
    timeout_s: float,
    is_local: bool,
) -> Reply:
    """
    Send a request (POST with a body, GET without) and wait for the whole reply.

    Raises:
        UnreachableError: No reply came within `timeout_s`.
    """
    headers = {"Accept": "application/json", "User-Agent": "rlvr-servers"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    data = None
    if body is not None:
        data = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(url, data=data, headers=headers)
    wire = _Wire()
    handlers = [_NoRedirects(), *wire.handlers()]
    if is_local:
        handlers.append(urllib.request.ProxyHandler({}))
    opener = urllib.request.build_opener(*handlers)
    try:
        async with asyncio.timeout(timeout_s):
            return await _in_thread(lambda: _blocking(opener, request, timeout_s))
    except TimeoutError as error:
        raise UnreachableError(f"no answer within {timeout_s:g} s") from error
    finally:
        wire.cut()


def _blocking(
    opener: urllib.request.OpenerDirector, request: urllib.request.Request, timeout_s: float
) -> Reply:
    try:
        try:
            response = opener.open(request, timeout=timeout_s)
        except urllib.error.HTTPError as error:  # an answer all the same
            response = error
        with response:
            received = response.read(MOST_BYTES + 1)
            if len(received) > MOST_BYTES:
                raise UnreachableError(f"a reply of more than {MOST_BYTES >> 20} MiB")
            text = received.decode("utf-8", errors="replace")
            return Reply(
                status=response.status or 0,
                text=text,
                retry_after_s=_seconds(response.headers.get("Retry-After", "")),
            )
    except UnreachableError:
        raise
    except urllib.error.URLError as error:
        raise UnreachableError(str(error.reason)) from error
    except TimeoutError as error:
        raise UnreachableError(f"no answer within {timeout_s:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(f"{type(error).__name__}: {error}") from error


def _seconds(text: str) -> float:
    try:
        return max(float(text), 0.0)
    except ValueError:  # a date: the usual pause will do
        return 0.0


async def _in_thread(call: Callable[[], T]) -> T:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # T itself may be None

    def work() -> None:
        result, failure = None, None
        try:
            result = call()
        except Exception as error:  # handed to whoever waits
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=work, name="rlvr-server", daemon=True).start()
    return await future
