"""Samplers: what they look at, and the requests that they answer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tinker import types

from rlvr_tinker_server.jobs.sample_jobs import Asked, read_asked, sample_together
from rlvr_tinker_server.jobs.saving import read_factors, save_adapter
from rlvr_tinker_server.nets.adapters import Factors
from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.state.futures import Answer, Future
from rlvr_tinker_server.state.service import Service
from rlvr_tinker_server.state.sessions import Slot, Trained
from rlvr_tinker_server.state.worker import Job


def save_for_sampler(
    service: Service, request: types.SaveWeightsForSamplerRequest, body: bytes
) -> Future:
    """
    The adapter as it is: under a name, or as a sampler that looks at it.

    Raises:
        Refusal: There is no such model, the number is another request's, or the name cannot be one.
    """
    if request.path is not None:
        return save_adapter(service, request.path, request, body)
    if request.sampling_session_seq_id is None:
        raise Refusal("save_weights_for_sampler needs a path or a sampling_session_seq_id")
    session, _ = service.sessions.of_model(request.model_id)
    sampler_id = f"{session.id}:sample:{request.sampling_session_seq_id}"

    def look(trained: Trained) -> Answer:
        factors = trained.made.snapshot()
        slot = Slot(factors=factors, base_model=trained.base_model)
        if request.kind == "inflight":  # one target, which all such samplers share
            trained.inflight = slot = trained.inflight or slot
            slot.factors, slot.used = factors, time.monotonic()
        session.samplers[sampler_id] = slot
        _forget_old_snapshots(service)
        return Answer.json({"type": "save_weights_for_sampler", "sampling_session_id": sampler_id})

    return service.in_line(request.model_id, request.seq_id, body, look)


def create_sampler(service: Service, request: types.CreateSamplingSessionRequest) -> str:
    """A sampler of the base model or of saved weights; `Refusal` where they are missing."""
    session = service.sessions.get(request.session_id)
    sampler_id = f"{session.id}:sample:{request.sampling_session_seq_id}"
    if sampler_id in session.samplers:
        return sampler_id
    if request.model_path is not None:
        about = service.about(request.model_path)
        slot = Slot(factors=None, base_model=about.base_model, path=request.model_path)
    elif request.base_model is not None:
        service.check_base(request.base_model)
        slot = Slot(factors={}, base_model=request.base_model)
    else:
        raise Refusal("a sampler needs a model_path or a base_model")
    session.samplers[sampler_id] = slot
    return sampler_id


def get_sampler(service: Service, sampler_id: str) -> dict[str, Any]:
    """What a sampler looks at; `Refusal` where there is no such sampler."""
    _, slot = service.sessions.of_sampler(sampler_id)
    return {"sampler_id": sampler_id, "base_model": slot.base_model, "model_path": slot.path}


def sample(service: Service, request: types.SampleRequest, body: bytes) -> Future:
    """
    Sequences, and what was asked about the prompt.

    Raises:
        Refusal: There is no such sampler. What is wrong with the request itself is its result.
    """
    if request.sampling_session_id is None or request.seq_id is None:
        raise Refusal("asample needs sampling_session_id and seq_id")
    session, slot = service.sessions.of_sampler(request.sampling_session_id)
    request_id = f"{request.sampling_session_id}:{request.seq_id}"
    if (again := service.sent_before(request_id, body)) is not None:
        return again
    count = min(request.num_samples, service.limits.max_samples)  # more are refused below
    ids = [f"{request_id}:{i}" for i in range(count)]
    future = service.accept(
        request_id, session, body, is_cancellable=True, extra={"sample_sequence_ids": ids}
    )
    try:
        asked = read_asked(request, service.base, service.limits.max_samples)
    except Refusal as error:
        future.fail(error)
        return future
    except OverflowError as error:
        future.fail(Refusal(f"a number is out of range: {error}"))
        return future

    def together(all_asked: Sequence[Asked]) -> Sequence[Answer | Exception]:
        return sample_together(
            service.base,
            _factors(service, slot),
            all_asked,
            rows=service.limits.decode_rows,
            is_cancelled=service.worker.is_closing,
        )

    key = None if service.limits.is_alone else id(slot)
    service.worker.add(Job(future=future, key=key, together=together, payload=asked))
    return future


def _factors(service: Service, slot: Slot) -> Factors:
    """The weights of a sampler, read when first needed; in the worker."""
    if slot.factors is None:
        if slot.path is None:
            raise Refusal(
                "these sampler weights are forgotten (--max-snapshots): make a new sampling "
                "client after each step, or save them under a name"
            )
        service.about(slot.path)
        slot.factors = read_factors(service, slot.path)
    factors, slot.used = slot.factors, time.monotonic()
    _forget_old_snapshots(service)
    return factors


def _forget_old_snapshots(service: Service) -> None:
    """Forget the weights that were unused for longest; those with a path can be read again."""
    held = {id(slot): slot for slot in service.sessions.samplers() if slot.factors}
    oldest = sorted(held.values(), key=lambda slot: slot.used)
    for slot in oldest[: max(0, len(oldest) - service.limits.max_snapshots)]:
        slot.factors = None
