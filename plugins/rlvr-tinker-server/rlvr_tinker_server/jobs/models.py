"""Models in training: new ones, and those that go on from a checkpoint."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import structlog
from tinker import types

from rlvr_tinker_server.jobs.saving import loaded
from rlvr_tinker_server.nets.adapters import Shape
from rlvr_tinker_server.nets.model import Model
from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.state.checkpoints import parse
from rlvr_tinker_server.state.futures import Answer, Future
from rlvr_tinker_server.state.service import Service
from rlvr_tinker_server.state.sessions import Session, Trained

log = structlog.get_logger(__name__)


def create_model(service: Service, request: types.CreateModelRequest, body: bytes) -> Future:
    """
    A new adapter.

    Raises:
        Refusal: Another base model or optimiser, a rank out of range, or too many adapters.
    """
    session = service.sessions.get(request.session_id)
    model_id = f"{session.id}:train:{request.model_seq_id}"
    if (again := service.sent_before(f"{model_id}:0", body)) is not None:
        return again
    service.check_base(request.base_model)
    _check_optimizer(request.optimizer_config)
    config = request.lora_config or types.LoraConfig(rank=32)
    most = service.limits.max_rank
    if not 1 <= config.rank <= most:
        raise Refusal(f"rank {config.rank} was asked for; this server takes 1..{most} (--max-rank)")
    net = service.base.net
    shape = Shape.of(config)
    if not any(map(shape.covers, net.sites)):
        raise Refusal("train_mlp, train_attn and train_unembed are all false: nothing to train")
    seed = secrets.randbits(31) if config.seed is None else config.seed

    def make() -> Model:
        return Model(net=net, shape=shape, seed=seed, factors=net.new_factors(shape, seed))

    answer = Answer.json({"type": "create_model", "model_id": model_id})
    trained = Trained(id=model_id, base_model=request.base_model)
    future = _make(service, session, trained, body, make, answer)
    log.info("model_created", model=model_id, rank=config.rank)
    return future


def load_weights(service: Service, request: types.LoadWeightsRequest, body: bytes) -> Future:
    """
    Weights of a checkpoint: as a new model, or put into one.

    Raises:
        Refusal: No such checkpoint, one of another base model or without the optimiser that was
            asked for, or too many adapters.
    """
    path, with_optimizer = request.path, request.optimizer
    if with_optimizer and parse(path)[1] != "weights":
        raise Refusal(f"{path} holds no optimiser: it was saved for sampling only")
    if request.model_id is not None:

        def put(trained: Trained) -> Answer:
            trained.model = loaded(service, path, with_optimizer)
            return _loaded(path, trained.id)

        return service.in_line(request.model_id, request.seq_id, body, put)
    if request.session_id is None or request.model_seq_id is None:
        raise Refusal("load_weights needs model_id and seq_id, or session_id and model_seq_id")
    session = service.sessions.get(request.session_id)
    model_id = f"{session.id}:train:{request.model_seq_id}"
    if (again := service.sent_before(f"{model_id}:0", body)) is not None:
        return again
    about = service.about(path)
    if request.base_model is not None:
        service.check_base(request.base_model)
    if request.optimizer_config is not None:
        _check_optimizer(request.optimizer_config)
    trained = Trained(id=model_id, base_model=request.base_model or about.base_model)
    answer = _loaded(path, model_id)
    future = _make(
        service, session, trained, body, lambda: loaded(service, path, with_optimizer), answer
    )
    log.info("model_created", model=model_id, rank=about.rank, path=path)
    return future


def get_info(service: Service, model_id: str) -> dict[str, Any]:
    """What a client asks of a model when it has made it; `Refusal` where there is no such model."""
    _, trained = service.sessions.of_model(model_id)
    data = {
        "arch": type(service.base.net.base).__name__,
        "model_name": trained.base_model,
        "tokenizer_id": service.base.tokenizer_at,
    }
    return {
        "type": "get_info",
        "model_id": model_id,
        "model_data": data,
        "is_lora": True,
        "lora_rank": trained.made.shape.rank,
        "model_name": trained.base_model,
    }


def _make(
    service: Service,
    session: Session,
    trained: Trained,
    body: bytes,
    make: Callable[[], Model],
    answer: Answer,
) -> Future:
    """Make the model in the worker, if there is room for it; if that fails, it takes none."""
    held = service.sessions.models()
    if held >= service.limits.max_adapters:
        raise Refusal(
            f"this server holds {held} adapters, the most it may (--max-adapters); end a session "
            "that is not needed"
        )
    session.models[trained.id] = trained

    def work() -> Answer:
        try:
            trained.model = make()
        except BaseException:
            session.models.pop(trained.id, None)
            raise
        return answer

    return service.start(f"{trained.id}:0", session, body, work)


def _check_optimizer(config: Any) -> None:
    if config.type != "adamw":
        raise Refusal(f"the optimiser {config.type!r} is not served; adamw is")


def _loaded(path: str, model_id: str) -> Answer:
    return Answer.json({"type": "load_weights", "path": path, "model_id": model_id})
