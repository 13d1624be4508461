"""A server that does things wrong when it is asked to, for tests of clients.

`POST /api/v1/faults {"rules": [...]}` sets the rules, `GET /api/v1/faults` tells them and how often
each endpoint was called since. A rule:

    {"on": "retrieve_future", "do": "status", "status": 503, "after": 2, "times": 3}

skips two requests of the endpoint and answers 503 to the next three. What can be done: `status`
(answer with it), `slow` (wait `delay_s`, then go on), `fail` (the result is a failure of `category`
server or user), `nan` (logprobs of a pass are NaN), `drop` (the connection breaks), `kill` (the
process dies at once). `contains` restricts a rule to bodies that hold the text.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from typing import Any

import attrs
import numpy as np
from attrs import define, field
from attrs.validators import in_
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tinker.proto import tinker_public_pb2 as pb

from rlvr_tinker_server import command, serve

KINDS = ("status", "slow", "fail", "nan", "drop", "kill")
_PREFIX = "/api/v1/"


@define(kw_only=True)
class Rule:
    """
    One thing to do wrong.

    Attributes:
        on: Endpoint, the first part of the path after `/api/v1/`.
        do: One of `KINDS`.
        after: So many requests of the endpoint go through before.
        times: So many are met; None: all further ones.
        status: HTTP status of `status`.
        delay_s: What `slow` waits.
        category: Of `fail`.
        contains: Only requests whose body holds this text.
    """

    on: str
    do: str = field(validator=in_(KINDS))
    after: int = 0
    times: int | None = 1
    status: int = 503
    delay_s: float = 1.0
    category: str = "server"
    contains: str = ""

    def meets(self, endpoint: str, body: bytes) -> bool:
        """Whether it is this request's turn; counts."""
        if endpoint != self.on or self.contains.encode() not in body:
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times == 0:
            return False
        if self.times is not None:
            self.times -= 1
        return True


@define
class Faults:
    """The rules, and how often each endpoint was called since they were set."""

    rules: list[Rule] = field(factory=list)
    requests: Counter[str] = field(factory=Counter)

    def set(self, described: Any) -> None:
        """
        Take new rules.

        Raises:
            TypeError, ValueError: They are none.
        """
        self.rules = [Rule(**one) for one in described]
        self.requests.clear()

    def described(self) -> dict[str, Any]:
        """For people and tests."""
        return {
            "rules": [attrs.asdict(rule) for rule in self.rules],
            "requests": dict(self.requests),
        }


class FaultsMiddleware:
    """Stands between clients and the application."""

    def __init__(self, app: ASGIApp, faults: Faults) -> None:
        self._app = app
        self._faults = faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        endpoint = scope["path"].removeprefix(_PREFIX).partition("/")[0]
        body = await _whole(receive)
        if endpoint == "faults":
            await self._control(scope["method"], body, send)
            return
        self._faults.requests[endpoint] += 1
        rule = next((one for one in self._faults.rules if one.meets(endpoint, body)), None)
        if rule is not None and await self._misbehave(rule, send):
            return
        answer = _poisoning(send) if rule is not None and rule.do == "nan" else send
        await self._app(scope, _again(body, receive), answer)

    async def _control(self, method: str, body: bytes, send: Send) -> None:
        if method == "POST":
            try:
                self._faults.set(json.loads(body)["rules"])
            except (ValueError, TypeError, KeyError) as error:
                await _reply(send, 400, {"detail": f"no rules: {error!r}"})
                return
        await _reply(send, 200, self._faults.described())

    async def _misbehave(self, rule: Rule, send: Send) -> bool:
        """Whether the request has got its answer."""
        if rule.do == "kill":
            os._exit(137)
        if rule.do == "slow":
            await asyncio.sleep(rule.delay_s)
        elif rule.do == "status":
            await _reply(send, rule.status, {"detail": "a fault was asked for"})
        elif rule.do == "fail":
            error = {"error": "a fault was asked for", "category": rule.category}
            await _reply(send, 200, error)
        elif rule.do == "drop":  # an answer that ends too early: the connection is closed
            headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"{", "more_body": True})
            raise ConnectionAbortedError("a fault was asked for")
        return rule.do in ("status", "fail", "drop")


def _poisoning(send: Send) -> Send:
    """Replaces the logprobs of a pass by NaN."""
    start: list[Message] = []

    async def poisoned(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.append(message)
            return
        body = message.get("body", b"")
        if dict(start[0]["headers"]).get(b"content-type") == b"application/x-protobuf":
            output = pb.ForwardBackwardOutput()
            output.ParseFromString(body)
            for record in output.loss_fn_outputs:
                for tensor in record.fields.values():
                    count = len(tensor.data) // 4
                    tensor.data = np.full(count, np.nan, np.float32).tobytes()
            for name in output.metrics:
                output.metrics[name] = float("nan")
            body = output.SerializeToString()
            others = [h for h in start[0]["headers"] if h[0] != b"content-length"]
            start[0]["headers"] = [*others, (b"content-length", str(len(body)).encode())]
        await send(start[0])
        await send({**message, "body": body})

    return poisoned


async def _whole(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """A body that was read already."""
    given: list[bool] = []

    async def replay() -> Message:
        if given:
            return await receive()
        given.append(True)
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _reply(send: Send, status: int, values: Any) -> None:
    body = json.dumps(values).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> int:
    """`rlvr tinker-server` with a middleware in front of its application."""
    make_app = serve.make_app

    def faulty(*args: Any, **options: Any) -> FaultsMiddleware:
        return FaultsMiddleware(make_app(*args, **options), Faults())

    serve.make_app = faulty  # type: ignore[assignment]
    return command.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
