"""What each endpoint does: from a request's body to the verb it asks for, and back.

A handler, called or awaited, gives a `Response`, the `Future` of a request that was accepted, or
what becomes a JSON body. A `Refusal` that it raises becomes the answer.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response
from tinker import types

from rlvr_tinker_server.api import reports
from rlvr_tinker_server.api.call import FIRST, WIRE, Call
from rlvr_tinker_server.jobs import models, samplers, saving, training
from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.state.checkpoints import check_ttl
from rlvr_tinker_server.state.futures import Future
from rlvr_tinker_server.state.line import Numbered
from rlvr_tinker_server.state.service import Service
from rlvr_tinker_server.wire import numbers_of_pass, read_pass

Handler = Callable[[Service, Call], Any]


class JSONResponse(Response):
    """JSON in ASCII: what is quoted in it may be any text, halves of surrogate pairs too."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()


def refused(detail: str, status: int) -> Response:
    """The answer to a request that is not served."""
    return JSONResponse({"detail": detail}, status_code=status)


async def answer(handler: Handler, service: Service, call: Call) -> Response:
    """The answer to a request; raises what the handler does."""
    found = handler(service, call)
    if inspect.isawaitable(found):
        found = await found
    if isinstance(found, Future):
        found = {"request_id": found.id, **found.extra}
    return found if isinstance(found, Response) else JSONResponse(found)


def _queued(kind: type[BaseModel], verb: Callable[[Service, Any, bytes], Future]) -> Handler:
    """`verb(service, request, body)` with the body as one of the SDK's requests."""
    return lambda service, call: verb(service, call.read(kind), call.body)


def _in_line(
    handler: Handler, numbered: Callable[[Call], Numbered | None] | None = None
) -> Handler:
    """A handler whose requests use up their numbers, also where they are refused."""

    async def serve(service: Service, call: Call) -> Response:
        try:
            return await answer(handler, service, call)
        except Exception as error:
            if (found := (numbered or _of_json)(call)) is not None:
                bug = Refusal(f"the server failed ({type(error).__name__})")
                service.use_up(found, call.body, error if isinstance(error, Refusal) else bug)
            raise

    return serve


def _of_json(call: Call) -> Numbered | None:
    try:
        told = call.json()
        model_id, number = told.get("model_id"), told.get("seq_id")
        if not isinstance(model_id, str) or not isinstance(number, int | str | float):
            return None
        return Numbered(model_id=model_id, number=int(number))
    except (Refusal, ValueError, OverflowError):
        return None


def _of_pass(call: Call) -> Numbered | None:
    found = numbers_of_pass(call.body)
    return found and Numbered(model_id=found[0], number=found[1], is_pass=not found[2])


def healthz(service: Service, call: Call) -> Any:
    """Whether the server is there; the only question that needs no key."""
    return {"status": "ok"}


def _client_config(service: Service, call: Call) -> Response:
    _check_version(str(call.json().get("sdk_version", "")))
    # The SDK asks this over a connection of its own that it never closes.
    return JSONResponse(
        {"parallel_fwdbwd_chunks": True, "use_pyqwest_transport": True},
        headers={"connection": "close"},
    )


def _check_version(version: str) -> None:
    """Refuse a client whose SDK is too old for this wire, or says no version."""
    parts = version.split(".")
    try:
        found = (int(parts[0]), int(parts[1]))
    except (ValueError, IndexError):
        raise Refusal(f"the client says no SDK version ({version!r})") from None
    if found < FIRST:
        raise Refusal(
            f"the client's tinker {version} speaks an older wire; this server was made for "
            f"{WIRE}: pip install 'tinker=={WIRE}.*'"
        )


def _create_session(service: Service, call: Call) -> Any:
    request = call.read(types.CreateSessionRequest)
    _check_version(request.sdk_version)
    session = service.create_session(request)
    return {"type": "create_session", "session_id": session.id}


def _heartbeat(service: Service, call: Call) -> Any:
    service.sessions.get(call.read(types.SessionHeartbeatRequest).session_id)
    return {"type": "session_heartbeat"}


async def _forward_backward(service: Service, call: Call) -> Future:
    request = await asyncio.to_thread(read_pass, call.body)
    return training.forward_backward(service, request, call.body)


def _create_sampler(service: Service, call: Call) -> Any:
    sampler = samplers.create_sampler(service, call.read(types.CreateSamplingSessionRequest))
    return {"type": "create_sampling_session", "sampling_session_id": sampler}


async def _sample(service: Service, call: Call) -> Future:
    request = await asyncio.to_thread(call.read, types.SampleRequest)
    return samplers.sample(service, request, call.body)


async def _retrieve(service: Service, call: Call) -> Response:
    request_id = call.read(types.FutureRetrieveRequest).request_id
    found = await service.futures.fetch(request_id, service.limits.wait_s)
    if found is None:
        waits = {"type": "try_again", "request_id": request_id, "queue_state": "active"}
        return JSONResponse(waits, status_code=408)
    return Response(found.body, media_type=found.media)


def _delete_checkpoint(service: Service, call: Call) -> Response:
    service.checkpoints.delete(_path_of(call))
    return Response(status_code=204)


def _expire_checkpoint(service: Service, call: Call) -> Response:
    ttl = call.json().get("ttl_seconds")
    service.checkpoints.expire(_path_of(call), check_ttl(ttl))
    return Response(status_code=204)


def _path_of(call: Call) -> str:
    return f"tinker://{call.path['run']}/{call.path['kind']}/{call.path['name']}"


def _named(call: Call, key: str) -> str:
    return str(call.json().get(key, ""))


_CHECKPOINT = "training_runs/{run}/checkpoints/{kind}/{name}"
_SAVE_FOR_SAMPLER = _queued(types.SaveWeightsForSamplerRequest, samplers.save_for_sampler)
ROUTES: list[tuple[str, str, Handler]] = [
    ("GET", "healthz", healthz),
    ("POST", "client/config", _client_config),
    (
        "POST",
        "client/dynamic_config",
        lambda s, c: {"refresh_interval_sec": 300, "sample_cancel_enabled": True},
    ),
    ("POST", "create_session", _create_session),
    ("POST", "session_heartbeat", _heartbeat),
    (
        "POST",
        "sessions/{session_id}/finish",
        lambda s, c: s.end_session(c.path["session_id"], "its client closed it"),
    ),
    ("GET", "get_server_capabilities", lambda s, c: reports.capabilities(s)),
    ("POST", "create_model", _queued(types.CreateModelRequest, models.create_model)),
    ("POST", "get_info", lambda s, c: models.get_info(s, _named(c, "model_id"))),
    ("POST", "forward_backward", _in_line(_forward_backward, _of_pass)),
    ("POST", "optim_step", _in_line(_queued(types.OptimStepRequest, training.optim_step))),
    ("POST", "save_weights", _in_line(_queued(types.SaveWeightsRequest, saving.save_weights))),
    ("POST", "load_weights", _in_line(_queued(types.LoadWeightsRequest, models.load_weights))),
    ("POST", "save_weights_for_sampler", _in_line(_SAVE_FOR_SAMPLER)),
    ("POST", "weights_info", lambda s, c: saving.weights_info(s, _named(c, "tinker_path"))),
    ("POST", "create_sampling_session", _create_sampler),
    ("GET", "samplers/{sampler_id}", lambda s, c: samplers.get_sampler(s, c.path["sampler_id"])),
    ("POST", "asample", _sample),
    ("POST", "cancel_future", lambda s, c: s.cancel(_named(c, "request_id"))),
    ("POST", "retrieve_future", _retrieve),
    ("POST", "telemetry", lambda s, c: {"status": "accepted"}),  # thrown away: nothing is kept
    ("GET", "training_runs", lambda s, c: reports.runs(s, c.query)),
    ("GET", "training_runs/{run}", lambda s, c: reports.run(s, c.path["run"])),
    ("GET", "training_runs/{run}/checkpoints", lambda s, c: reports.checkpoints(s, c.path["run"])),
    ("GET", "checkpoints", lambda s, c: reports.all_checkpoints(s, c.query)),
    ("DELETE", _CHECKPOINT, _delete_checkpoint),
    ("PUT", f"{_CHECKPOINT}/ttl", _expire_checkpoint),
]
