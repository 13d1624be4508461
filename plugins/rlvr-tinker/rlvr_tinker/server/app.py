"""The HTTP side: routes, bodies, and what a refusal looks like on the wire."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import structlog
import zstandard
from attrs import frozen
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tinker import types

from rlvr_tinker.server import reports
from rlvr_tinker.server.faults import Faults, FaultsMiddleware
from rlvr_tinker.server.futures import Future
from rlvr_tinker.server.refusal import Refusal
from rlvr_tinker.server.service import Service
from rlvr_tinker.server.wire import read_pass

log = structlog.get_logger(__name__)

MOST_BYTES = 64 << 20
"""Of a body, also after it was decompressed."""

_FIRST, _LAST = (0, 38), "0.38"
Parsed = TypeVar("Parsed", bound=BaseModel)
Handler = Callable[[Service, "Call"], Awaitable[Response]]


@frozen(kw_only=True, eq=False)
class Call:
    """One HTTP request: its body, and the parts of its path."""

    body: bytes
    path: dict[str, str]
    query: dict[str, str]

    def json(self) -> dict[str, Any]:
        """
        The body.

        Raises:
            Refusal: It is no JSON object.
        """
        try:
            found = json.loads(self.body or b"{}")
        except ValueError as error:
            raise Refusal(f"the body is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise Refusal("the body is JSON, but no object")
        return found

    def read(self, kind: type[Parsed]) -> Parsed:
        """
        The body as one of the SDK's own requests.

        Raises:
            Refusal: It is none: what is wrong is named.
        """
        try:
            return kind.model_validate(self.json())
        except ValidationError as error:
            wrong = "; ".join(
                f"{'.'.join(map(str, one['loc'])) or 'body'}: {one['msg']}"
                for one in error.errors(include_url=False)[:5]
            )
            raise Refusal(f"the body is no {kind.__name__} of tinker {_LAST}: {wrong}") from None


def make_app(
    service: Service, *, key: str | None, hosts: list[str], faults: Faults | None = None
) -> Starlette:
    """
    The ASGI application.

    Args:
        service: What answers.
        key: The only API key that is let in; None: any (on loopback).
        hosts: Names that the `Host` header may have.
        faults: What to do wrong, for tests.
    """

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(service.worker.run()),
            asyncio.create_task(service.end_silent_sessions()),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            service.worker.close()

    middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=hosts)]
    if faults is not None:
        middleware.append(Middleware(FaultsMiddleware, faults=faults))
    routes = [
        Route(f"/api/v1/{path}", _endpoint(service, handler, key), methods=[method])
        for method, path, handler in _ROUTES
    ]
    return Starlette(routes=routes, lifespan=life, middleware=middleware)


def _endpoint(
    service: Service, handler: Handler, key: str | None
) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        try:
            if handler is not _healthz:
                _check_key(request, key)
            call = Call(
                body=await _read_body(request),
                path=dict(request.path_params),
                query=dict(request.query_params),
            )
            return await handler(service, call)
        except Refusal as refusal:
            return JSONResponse({"detail": str(refusal)}, status_code=refusal.status)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:  # the server's border: one bad request is not the end of it
            log.exception("request_crashed", path=request.url.path)
            name = type(error).__name__
            return JSONResponse({"detail": f"the server failed ({name})"}, status_code=500)

    return serve


def _check_key(request: Request, key: str | None) -> None:
    """A page in a browser cannot send these headers to another origin unasked."""
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    given = request.headers.get("x-api-key", "") or bearer
    if not given:
        raise Refusal("no API key was sent (X-API-Key): set TINKER_API_KEY", 401)
    if key is not None and not hmac.compare_digest(given.encode(), key.encode()):
        raise Refusal("the API key is not the one this server was started with (--key-file)", 401)


async def _read_body(request: Request) -> bytes:
    """
    The whole body, decompressed.

    Raises:
        Refusal: It is too large, or no zstd where it says so.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise Refusal(f"the body is larger than {MOST_BYTES >> 20} MiB: send fewer data", 413)
        parts.append(part)
    body = b"".join(parts)
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
        raise Refusal(f"the body is larger than {MOST_BYTES >> 20} MiB: send fewer data", 413)
    return plain


def _accepted(future: Future) -> Response:
    return JSONResponse({"request_id": future.id, **future.extra})


# --- sessions -----------------------------------------------------------------------------------


async def _healthz(service: Service, call: Call) -> Response:
    return JSONResponse({"status": "ok"})


async def _client_config(service: Service, call: Call) -> Response:
    _check_version(str(call.json().get("sdk_version", "")))
    # The SDK asks this over a connection of its own that it never closes.
    return JSONResponse(
        {"parallel_fwdbwd_chunks": True, "use_pyqwest_transport": True},
        headers={"connection": "close"},
    )


async def _dynamic_config(service: Service, call: Call) -> Response:
    return JSONResponse({"refresh_interval_sec": 300, "sample_cancel_enabled": True})


def _check_version(version: str) -> None:
    """
    Refuse a client whose wire this server does not know.

    Raises:
        Refusal: Its SDK is too old, or says no version.
    """
    parts = version.split(".")
    try:
        found = (int(parts[0]), int(parts[1]))
    except (ValueError, IndexError):
        raise Refusal(f"the client says no SDK version ({version!r})") from None
    if found < _FIRST:
        raise Refusal(
            f"the client's tinker {version} speaks an older wire; this server was made for "
            f"{_LAST}: pip install 'tinker=={_LAST}.*'"
        )


async def _create_session(service: Service, call: Call) -> Response:
    request = call.read(types.CreateSessionRequest)
    _check_version(request.sdk_version)
    session = service.create_session(request)
    return JSONResponse({"type": "create_session", "session_id": session.id})


async def _heartbeat(service: Service, call: Call) -> Response:
    service.sessions.get(call.read(types.SessionHeartbeatRequest).session_id)
    return JSONResponse({"type": "session_heartbeat"})


async def _finish(service: Service, call: Call) -> Response:
    service.end_session(call.path["session_id"], "its client closed it")
    return JSONResponse(None)


async def _capabilities(service: Service, call: Call) -> Response:
    return JSONResponse(reports.capabilities(service))


# --- models and training ------------------------------------------------------------------------


async def _create_model(service: Service, call: Call) -> Response:
    return _accepted(service.create_model(call.read(types.CreateModelRequest), call.body))


async def _get_info(service: Service, call: Call) -> Response:
    return JSONResponse(service.get_info(str(call.json().get("model_id", ""))))


async def _forward_backward(service: Service, call: Call) -> Response:
    request = await asyncio.to_thread(read_pass, call.body)
    return _accepted(service.forward_backward(request, call.body))


async def _optim_step(service: Service, call: Call) -> Response:
    return _accepted(service.optim_step(call.read(types.OptimStepRequest), call.body))


async def _save_weights(service: Service, call: Call) -> Response:
    return _accepted(service.save_weights(call.read(types.SaveWeightsRequest), call.body))


async def _load_weights(service: Service, call: Call) -> Response:
    return _accepted(service.load_weights(call.read(types.LoadWeightsRequest), call.body))


async def _save_for_sampler(service: Service, call: Call) -> Response:
    request = call.read(types.SaveWeightsForSamplerRequest)
    return _accepted(service.save_for_sampler(request, call.body))


async def _weights_info(service: Service, call: Call) -> Response:
    return JSONResponse(service.weights_info(str(call.json().get("tinker_path", ""))))


# --- sampling and results -----------------------------------------------------------------------


async def _create_sampler(service: Service, call: Call) -> Response:
    sampler = service.create_sampler(call.read(types.CreateSamplingSessionRequest))
    return JSONResponse({"type": "create_sampling_session", "sampling_session_id": sampler})


async def _get_sampler(service: Service, call: Call) -> Response:
    return JSONResponse(service.get_sampler(call.path["sampler_id"]))


async def _sample(service: Service, call: Call) -> Response:
    request = await asyncio.to_thread(call.read, types.SampleRequest)
    return _accepted(service.sample(request, call.body))


async def _cancel(service: Service, call: Call) -> Response:
    service.cancel(str(call.json().get("request_id", "")))
    return JSONResponse(None)


async def _retrieve(service: Service, call: Call) -> Response:
    request_id = call.read(types.FutureRetrieveRequest).request_id
    answer = await service.futures.fetch(request_id, service.limits.wait_s)
    if answer is None:
        waits = {"type": "try_again", "request_id": request_id, "queue_state": "active"}
        return JSONResponse(waits, status_code=408)
    return Response(answer.body, media_type=answer.media)


async def _telemetry(service: Service, call: Call) -> Response:
    """Taken and thrown away: nothing about clients is kept."""
    return JSONResponse({"status": "accepted"})


# --- looking around -----------------------------------------------------------------------------


async def _training_runs(service: Service, call: Call) -> Response:
    return JSONResponse(reports.runs(service, call.query))


async def _training_run(service: Service, call: Call) -> Response:
    return JSONResponse(reports.run(service, call.path["run"]))


async def _run_checkpoints(service: Service, call: Call) -> Response:
    return JSONResponse(reports.checkpoints(service, call.path["run"]))


async def _all_checkpoints(service: Service, call: Call) -> Response:
    return JSONResponse(reports.all_checkpoints(service, call.query))


async def _delete_checkpoint(service: Service, call: Call) -> Response:
    service.checkpoints.delete(_path_of(call))
    return Response(status_code=204)


async def _expire_checkpoint(service: Service, call: Call) -> Response:
    ttl = call.json().get("ttl_seconds")
    if ttl is not None and not (isinstance(ttl, int) and ttl > 0):
        raise Refusal(f"ttl_seconds={ttl!r}: a whole number above 0, or null")
    service.checkpoints.expire(_path_of(call), ttl)
    return Response(status_code=204)


def _path_of(call: Call) -> str:
    return f"tinker://{call.path['run']}/{call.path['kind']}/{call.path['name']}"


_CHECKPOINT = "training_runs/{run}/checkpoints/{kind}/{name}"
_ROUTES: list[tuple[str, str, Handler]] = [
    ("GET", "healthz", _healthz),
    ("POST", "client/config", _client_config),
    ("POST", "client/dynamic_config", _dynamic_config),
    ("POST", "create_session", _create_session),
    ("POST", "session_heartbeat", _heartbeat),
    ("POST", "sessions/{session_id}/finish", _finish),
    ("GET", "get_server_capabilities", _capabilities),
    ("POST", "create_model", _create_model),
    ("POST", "get_info", _get_info),
    ("POST", "forward_backward", _forward_backward),
    ("POST", "optim_step", _optim_step),
    ("POST", "save_weights", _save_weights),
    ("POST", "load_weights", _load_weights),
    ("POST", "save_weights_for_sampler", _save_for_sampler),
    ("POST", "weights_info", _weights_info),
    ("POST", "create_sampling_session", _create_sampler),
    ("GET", "samplers/{sampler_id}", _get_sampler),
    ("POST", "asample", _sample),
    ("POST", "cancel_future", _cancel),
    ("POST", "retrieve_future", _retrieve),
    ("POST", "telemetry", _telemetry),
    ("GET", "training_runs", _training_runs),
    ("GET", "training_runs/{run}", _training_run),
    ("GET", "training_runs/{run}/checkpoints", _run_checkpoints),
    ("GET", "checkpoints", _all_checkpoints),
    ("DELETE", _CHECKPOINT, _delete_checkpoint),
    ("PUT", f"{_CHECKPOINT}/ttl", _expire_checkpoint),
]
