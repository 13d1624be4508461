"""Give a server new weights: a folder that it can read too, then a request to take them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog
from attrs import frozen

from rlvr import BackendError, PrerequisiteError
from rlvr_servers.client.endpoint import BrokenError, MissingError, RefusedError, RequestError
from rlvr_servers.protocols.protocol import ServerProtocol
from rlvr_servers.protocols.vllm import Vllm

ADAPTER = "adapter_config.json"
ADAPTER_PREFIX = "rlvr-"
"""What the names of a run's adapters begin with, on the server."""

log = structlog.get_logger(__name__)


@frozen(kw_only=True)
class Weights:
    """
    Weights on disk.

    Attributes:
        directory: Where they were written.
        seen_at: The same folder as the server sees it.
        label: What tells them apart from all others: begins with their sha256.
    """

    directory: Path
    seen_at: str
    label: str


async def push(protocol: ServerProtocol, weights: Weights) -> None:
    """
    Have a vLLM or SGLang server draw from these weights; no request may be under way.

    An adapter is loaded under a name of its own (`/load_lora_adapter`), and the one before is
    unloaded. A whole model replaces the served one: vLLM by `reload_weights` of `/collective_rpc`,
    SGLang by `/update_weights_from_disk`. SGLang's completions then name the label again as their
    `weight_version`, and one drawn from other weights is refused; vLLM names no version, and the
    mismatch check of the run (`parity.threshold`) shows whether it draws from the new weights.

    Raises:
        PrerequisiteError: The server was not started so that it takes weights.
        BackendError: It could not read them, or does not answer.
    """
    is_vllm = isinstance(protocol, Vllm)
    if (weights.directory / ADAPTER).is_file():
        await _push_adapter(protocol, weights, is_vllm=is_vllm)
    elif is_vllm:
        hint = "start it with VLLM_SERVER_DEV_MODE=1, which opens /collective_rpc"
        body: dict[str, Any] = {
            "method": "reload_weights",
            "kwargs": {"weights_path": weights.seen_at},
        }
        await _take(protocol, "/collective_rpc", body, weights, hint)
        await _take(protocol, "/reset_prefix_cache", {}, weights, hint)
    else:
        body = {
            "model_path": weights.seen_at,
            "weight_version": weights.label,
            "flush_cache": True,
        }
        hint = "serve the same architecture as the run's model, from a folder that both can read"
        await _take(protocol, "/update_weights_from_disk", body, weights, hint)


async def _push_adapter(protocol: ServerProtocol, weights: Weights, *, is_vllm: bool) -> None:
    name, before = f"{ADAPTER_PREFIX}{weights.label}", protocol.adapter
    body: dict[str, Any] = {"lora_name": name, "lora_path": weights.seen_at}
    base, known, setting = "", "already", ""
    if is_vllm:
        body["load_inplace"] = True
        base, known = "/v1", "already been loaded"
        setting = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and "
    hint = f"start it with {setting}--enable-lora --max-lora-rank RANK"
    await _take(protocol, f"{base}/load_lora_adapter", body, weights, hint, known)
    protocol.adapter = name
    if is_vllm:  # which serves adapters as models
        protocol.endpoint.model = name
    if before not in ("", name):
        try:
            await protocol.endpoint.ask(
                f"{base}/unload_lora_adapter", {"lora_name": before}, lambda _: None
            )
        except RequestError as error:  # it would only have made room
            log.warning("old_adapter_stays", why=str(error)[:200])


async def _take(
    protocol: ServerProtocol,
    path: str,
    body: Mapping[str, Any],
    weights: Weights,
    hint: str,
    known: str = "",
) -> None:
    """Ask for it; a refusal with the words `known` means that the server has the weights."""
    endpoint = protocol.endpoint
    asked = f"the {endpoint.kind} server was to take the weights in {weights.seen_at}."
    read = _ignore if isinstance(protocol, Vllm) else _check_success
    try:
        await endpoint.ask(path, body, read)
    except MissingError as error:
        raise PrerequisiteError(asked, f"found: {error}", hint) from error
    except RequestError as error:
        if known and known in str(error):
            return
        raise BackendError(
            asked,
            f"found: {error}",
            "look at its log; it must be able to read that folder (servers.weights_dir, "
            f"servers.weights_seen_at); {hint}",
        ) from error


def _ignore(_: Any) -> None:
    """VLLM's answers to such requests say nothing."""


def _check_success(found: Any) -> None:
    if not isinstance(found, dict):
        raise BrokenError("the answer does not say whether the weights were taken")
    if found.get("success") is False:
        raise RefusedError(str(found.get("message") or found)[:300])
