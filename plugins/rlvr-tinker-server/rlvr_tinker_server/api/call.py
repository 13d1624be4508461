"""One HTTP request as it came: its key, its body, and what the body says."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncGenerator
from typing import Any, TypeVar

import zstandard
from attrs import frozen
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from rlvr_tinker_server.refusal import Refusal

MOST_BYTES = 64 << 20
"""Of a body, also after it was decompressed."""

FIRST, WIRE = (0, 38), "0.38"
"""The first SDK whose wire is spoken here, and what it is called."""

Parsed = TypeVar("Parsed", bound=BaseModel)


@frozen(kw_only=True, eq=False)
class Call:
    """One HTTP request: its body, and the parts of its path."""

    body: bytes
    path: dict[str, str]
    query: dict[str, str]

    def json(self) -> dict[str, Any]:
        """The body as a JSON object; raises `Refusal` where it is none."""
        try:
            found = json.loads(self.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise Refusal(f"the body is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise Refusal("the body is JSON, but no object")
        return found

    def read(self, kind: type[Parsed]) -> Parsed:
        """The body as one of the SDK's own requests; a `Refusal` names what is wrong with it."""
        try:
            return kind.model_validate(self.json())
        except ValidationError as error:
            wrong = "; ".join(
                f"{'.'.join(map(str, one['loc'])) or 'body'}: {one['msg']}"
                for one in error.errors(include_url=False)[:5]
            )
            raise Refusal(f"the body is no {kind.__name__} of tinker {WIRE}: {wrong}") from None


def check_key(request: Request, key: str | None) -> None:
    """
    Refuse (401) a request without the key, the only one let in; None: any key is.

    A page in a browser cannot send these headers unasked.
    """
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    given = request.headers.get("x-api-key", "") or bearer
    if not given:
        raise Refusal("no API key was sent (X-API-Key): set TINKER_API_KEY", 401)
    if key is not None and not hmac.compare_digest(given.encode(), key.encode()):
        raise Refusal("the API key is not the one this server was started with (--key-file)", 401)


async def _next_part(stream: AsyncGenerator[bytes, None]) -> bytes | None:
    """The next part of a body; None at its end."""
    part = asyncio.ensure_future(anext(stream, None))
    # In short waits: where this process was held up, that is not the client's silence.
    for _ in range(9):
        await asyncio.wait({part}, timeout=0.1)
        if part.done():
            return part.result()
    part.cancel()
    await asyncio.wait({part})
    raise Refusal("the body stopped before its end: is content-length right?", 408)


async def read_body(request: Request) -> bytes:
    """
    The whole body, decompressed.

    Raises:
        Refusal: It is too large, stops before its end, or is no zstd where it says so.
    """
    too_large = Refusal(f"the body is larger than {MOST_BYTES >> 20} MiB: send fewer data", 413)
    read = bytearray()
    stream = request.stream()
    while (part := await _next_part(stream)) is not None:
        read += part
        if len(read) > MOST_BYTES:
            raise too_large
    body = bytes(read)
    encoding = request.headers.get("content-encoding", "identity")
    if encoding == "identity":
        return body
    if encoding != "zstd":
        raise Refusal(f"the body is encoded as {encoding!r}; zstd or none is read", 415)
    try:
        reader = zstandard.ZstdDecompressor().stream_reader(body)
        plain = reader.read(MOST_BYTES + 1)
    except zstandard.ZstdError as error:
        raise Refusal(f"the body is no zstd: {error}") from None
    if len(plain) > MOST_BYTES:
        raise too_large
    return plain
