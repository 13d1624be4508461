"""Weights to disk and back: states to go on from, and adapters to sample from."""

from __future__ import annotations

from typing import Any

import attrs
import structlog
from tinker import types
from torch import Tensor

from rlvr_tinker_server.nets.adam import Adam
from rlvr_tinker_server.nets.adapters import Shape
from rlvr_tinker_server.nets.model import Model
from rlvr_tinker_server.state.checkpoints import About, check_name, check_ttl
from rlvr_tinker_server.state.futures import Answer, Future
from rlvr_tinker_server.state.service import Service
from rlvr_tinker_server.state.sessions import Trained

log = structlog.get_logger(__name__)


def save_weights(service: Service, request: types.SaveWeightsRequest, body: bytes) -> Future:
    """
    Adapter and optimiser, to go on from.

    Raises:
        Refusal: There is no such model, the number is another request's, or the name cannot be one.
    """
    name = request.path or f"state-{request.seq_id}"
    return _save(service, request, body, "weights", name, overwrite=request.overwrite)


def save_adapter(
    service: Service, name: str, request: types.SaveWeightsForSamplerRequest, body: bytes
) -> Future:
    """The adapter alone, under a name; raises as `save_weights`."""
    return _save(service, request, body, "sampler_weights", name, overwrite=True)


def _save(
    service: Service,
    request: types.SaveWeightsRequest | types.SaveWeightsForSamplerRequest,
    body: bytes,
    kind: str,
    name: str,
    *,
    overwrite: bool,
) -> Future:
    check_name(name)
    check_ttl(request.ttl_seconds)

    def work(trained: Trained) -> Answer:
        model, path = trained.made, f"tinker://{trained.id}/{kind}/{name}"
        parts = {"adapter": model.weights()}
        if kind == "weights":
            means, squares = model.adam.means.items(), model.adam.squares.items()
            parts["optimizer"] = {f"mean.{n}": t for n, t in means}
            parts["optimizer"] |= {f"square.{n}": t for n, t in squares}
        about = About(
            base=service.base.digest,
            base_model=trained.base_model,
            **attrs.asdict(model.shape),
            seed=model.seed,
            steps=model.adam.steps,
            lives_s=request.ttl_seconds,
            metadata=request.user_metadata or {},
        )
        service.checkpoints.save(path, about, parts, overwrite=overwrite)
        log.info("weights_saved", path=path, steps=model.adam.steps)
        verb = "save_weights" if kind == "weights" else "save_weights_for_sampler"
        return Answer.json({"type": verb, "path": path})

    return service.in_line(request.model_id, request.seq_id, body, work)


def weights_info(service: Service, path: str) -> dict[str, Any]:
    """What a checkpoint is; `Refusal` where there is none at the path."""
    about = service.checkpoints.about(path)
    shape = attrs.asdict(Shape.of(about))
    rank = shape.pop("rank")
    return {"base_model": about.base_model, "is_lora": True, "lora_rank": rank, **shape}


def loaded(service: Service, path: str, with_optimizer: bool) -> Model:
    """
    A model from a checkpoint; in the worker.

    Raises:
        Refusal: There is none at the path, it is damaged, or it belongs to another base model.
    """
    about, net = service.about(path), service.base.net
    adam = Adam()
    if with_optimizer:
        adam.steps = about.steps
        for name, tensor in service.checkpoints.load(path, "optimizer").items():
            kind, _, weight = name.partition(".")
            kept = adam.means if kind == "mean" else adam.squares
            kept[weight] = tensor.to(net.head.device)
    factors = read_factors(service, path)
    return Model(net=net, shape=Shape.of(about), seed=about.seed, factors=factors, adam=adam)


def read_factors(service: Service, path: str) -> dict[str, tuple[Tensor, Tensor]]:
    """The adapter of a checkpoint; raises as `loaded`."""
    device = service.base.net.head.device
    tensors = service.checkpoints.load(path, "adapter")
    sites = [name.removesuffix(".A") for name in tensors if name.endswith(".A")]
    return {s: (tensors[f"{s}.A"].to(device), tensors[f"{s}.B"].to(device)) for s in sites}
