"""One HTTP request and its reply; a request that is cancelled closes its connection at once."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx
from attrs import field, frozen

MOST_BYTES = 256 << 20
"""Largest reply: 64 likeliest tokens at 32,000 positions take about half of it."""

_tls = lru_cache(maxsize=1)(ssl.create_default_context)
"""The certificates of this machine, read once: that takes longer than a local request."""


class UnreachableError(OSError):
    """Nothing came back: refused, reset, cut off, or no answer in time."""


@frozen(kw_only=True)
class Reply:
    """What the server said. `retry_after_s` is 0 where it did not ask for a pause."""

    status: int
    text: str = field(repr=False)
    retry_after_s: float = 0.0

    def json(self) -> Any:
        """The body as JSON; None if it is not JSON."""
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


async def exchange(
    url: str, *, key: str, body: Mapping[str, Any] | None, timeout_s: float, is_local: bool
) -> Reply:
    """
    Send a request (POST with a body, GET without) and wait for the whole reply.

    Redirects are not followed: they would carry the key to another host. Proxies are those of the
    environment, and none for this machine (`is_local`).

    Raises:
        UnreachableError: No reply came within `timeout_s`.
    """
    headers = {"Accept": "application/json", "User-Agent": "rlvr-servers"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    method, content = "GET", b""
    if body is not None:
        method, content = "POST", json.dumps(body).encode()  # half characters stay escaped
        headers["Content-Type"] = "application/json"
    try:
        proxy = None if is_local else _proxy_of(url)
        async with (
            asyncio.timeout(timeout_s),
            httpx.AsyncClient(verify=_tls(), timeout=None, trust_env=False, proxy=proxy) as client,
            client.stream(method, url, headers=headers, content=content) as response,
        ):
            received = bytearray()
            async for part in response.aiter_bytes():
                received += part
                if len(received) > MOST_BYTES:
                    raise UnreachableError(f"a reply of more than {MOST_BYTES >> 20} MiB")
    except TimeoutError as error:
        raise UnreachableError(f"no answer within {timeout_s:g} s") from error
    except UnreachableError:
        raise
    except (httpx.HTTPError, httpx.InvalidURL, ImportError, OSError, ValueError) as error:
        # a bad proxy too, and a TLS error at the first read
        raise UnreachableError(f"{type(error).__name__}: {error}") from error
    try:
        pause_s = max(float(response.headers.get("Retry-After", "")), 0.0)
    except ValueError:  # none, or a date: the usual pause will do
        pause_s = 0.0
    text = received.decode("utf-8", errors="replace")
    return Reply(status=response.status_code, text=text, retry_after_s=pause_s)


def _proxy_of(url: str) -> str | None:
    """The environment's proxy, as urllib reads it: httpx takes `NO_PROXY` with `[::1]` amiss."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
