"""What each endpoint does: from a request's body to the verb it asks for, and back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

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

Handler = Callable[[Service, Call], Awaitable[Response]]


class JSONResponse(Response):
    """JSON in ASCII: what is quoted in it may be any text, halves of surrogate pairs too."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        return json.dumps(content).encode()


def refused(detail: str, status: int) -> Response:
    """The answer to a request that is not served."""
    return JSONResponse({"detail": detail}, status_code=status)


def _accepted(future: Future) -> Response:
    return JSONResponse({"request_id": future.id, **future.extra})


def _in_line(handler: Handler, numbered: Callable[[Call], Numbered | None]) -> Handler:
    """A handler whose requests use up their numbers, also where they are refused."""

    async def serve(service: Service, call: Call) -> Response:
        try:
            return await handler(service, call)
        except Exception as error:
            if (found := numbered(call)) is not None:
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


# --- sessions -----------------------------------------------------------------------------------


async def healthz(service: Service, call: Call) -> Response:
    """Whether the server is there; the only question that needs no key."""
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
    if found < FIRST:
        raise Refusal(
            f"the client's tinker {version} speaks an older wire; this server was made for "
            f"{WIRE}: pip install 'tinker=={WIRE}.*'"
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
    return _accepted(models.create_model(service, call.read(types.CreateModelRequest), call.body))


async def _get_info(service: Service, call: Call) -> Response:
    return JSONResponse(models.get_info(service, str(call.json().get("model_id", ""))))


async def _forward_backward(service: Service, call: Call) -> Response:
    request = await asyncio.to_thread(read_pass, call.body)
    return _accepted(training.forward_backward(service, request, call.body))


async def _optim_step(service: Service, call: Call) -> Response:
    return _accepted(training.optim_step(service, call.read(types.OptimStepRequest), call.body))


async def _save_weights(service: Service, call: Call) -> Response:
    return _accepted(saving.save_weights(service, call.read(types.SaveWeightsRequest), call.body))


async def _load_weights(service: Service, call: Call) -> Response:
    return _accepted(models.load_weights(service, call.read(types.LoadWeightsRequest), call.body))


async def _save_for_sampler(service: Service, call: Call) -> Response:
    request = call.read(types.SaveWeightsForSamplerRequest)
    return _accepted(samplers.save_for_sampler(service, request, call.body))


async def _weights_info(service: Service, call: Call) -> Response:
    return JSONResponse(saving.weights_info(service, str(call.json().get("tinker_path", ""))))


# --- sampling and results -----------------------------------------------------------------------


async def _create_sampler(service: Service, call: Call) -> Response:
    sampler = samplers.create_sampler(service, call.read(types.CreateSamplingSessionRequest))
    return JSONResponse({"type": "create_sampling_session", "sampling_session_id": sampler})


async def _get_sampler(service: Service, call: Call) -> Response:
    return JSONResponse(samplers.get_sampler(service, call.path["sampler_id"]))


async def _sample(service: Service, call: Call) -> Response:
    request = await asyncio.to_thread(call.read, types.SampleRequest)
    return _accepted(samplers.sample(service, request, call.body))


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
    service.checkpoints.expire(_path_of(call), check_ttl(ttl))
    return Response(status_code=204)


def _path_of(call: Call) -> str:
    return f"tinker://{call.path['run']}/{call.path['kind']}/{call.path['name']}"


_CHECKPOINT = "training_runs/{run}/checkpoints/{kind}/{name}"
ROUTES: list[tuple[str, str, Handler]] = [
    ("GET", "healthz", healthz),
    ("POST", "client/config", _client_config),
    ("POST", "client/dynamic_config", _dynamic_config),
    ("POST", "create_session", _create_session),
    ("POST", "session_heartbeat", _heartbeat),
    ("POST", "sessions/{session_id}/finish", _finish),
    ("GET", "get_server_capabilities", _capabilities),
    ("POST", "create_model", _create_model),
    ("POST", "get_info", _get_info),
    ("POST", "forward_backward", _in_line(_forward_backward, _of_pass)),
    ("POST", "optim_step", _in_line(_optim_step, _of_json)),
    ("POST", "save_weights", _in_line(_save_weights, _of_json)),
    ("POST", "load_weights", _in_line(_load_weights, _of_json)),
    ("POST", "save_weights_for_sampler", _in_line(_save_for_sampler, _of_json)),
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
