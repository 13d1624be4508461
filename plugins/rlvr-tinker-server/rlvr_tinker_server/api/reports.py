"""What the server tells about itself: models, runs and checkpoints, in the API's own words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.state.checkpoints import About, parse
from rlvr_tinker_server.state.service import Service

Listing = dict[str, Any]


def capabilities(service: Service) -> Listing:
    """What the server offers: its one model."""
    model = {
        "model_name": service.base.name,
        "max_context_length": service.base.net.positions,
        "trainable": True,
        "sampleable": True,
    }
    return {"supported_models": [model]}


def checkpoints(service: Service, run: str) -> Listing:
    """The checkpoints of one run."""
    return {"checkpoints": [_checkpoint(*one) for one in service.checkpoints.listed(run)]}


def all_checkpoints(service: Service, query: Mapping[str, str]) -> Listing:
    """A page of all checkpoints."""
    some, cursor = _page(service.checkpoints.listed(), query)
    return {"checkpoints": [_checkpoint(*one) for one in some], "cursor": cursor}


def runs(service: Service, query: Mapping[str, str]) -> Listing:
    """A page of the runs that have checkpoints."""
    names = list(dict.fromkeys(parse(path)[0] for path, _ in service.checkpoints.listed()))
    some, cursor = _page(names, query)
    return {"training_runs": [run(service, name) for name in some], "cursor": cursor}


def run(service: Service, name: str) -> Listing:
    """One run; `Refusal` where it has no checkpoint."""
    found = service.checkpoints.listed(name)
    if not found:
        raise Refusal(f"no run {name} with a checkpoint on this server", 404)
    about = found[-1][1]
    last = {parse(path)[1]: _checkpoint(path, one) for path, one in found}
    return {
        "training_run_id": name,
        "base_model": about.base_model,
        "model_owner": "this machine",
        "is_lora": True,
        "lora_rank": about.rank,
        "last_request_time": _time(about.created),
        "last_checkpoint": last.get("weights"),
        "last_sampler_checkpoint": last.get("sampler_weights"),
    }


def _checkpoint(path: str, about: About) -> Listing:
    _, kind, name = parse(path)
    return {
        "checkpoint_id": f"{kind}/{name}",
        "checkpoint_type": "training" if kind == "weights" else "sampler",
        "time": _time(about.created),
        "tinker_path": path,
        "size_bytes": about.size,
        "user_metadata": dict(about.metadata) or None,
        "expires_at": None if about.lives_s is None else _time(about.created + about.lives_s),
    }


def _page(found: list[Any], query: Mapping[str, str]) -> tuple[list[Any], Listing]:
    try:
        limit, offset = int(query.get("limit", "100")), int(query.get("offset", "0"))
    except ValueError:
        raise Refusal("limit and offset must be whole numbers") from None
    if limit < 0 or offset < 0:
        raise Refusal("limit and offset must not be negative")
    cursor = {"offset": offset, "limit": limit, "total_count": len(found)}
    return found[offset : offset + limit], cursor


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
