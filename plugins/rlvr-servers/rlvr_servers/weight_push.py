"""How each kind of server is given new weights: one interface, three protocols.

Weights are written as a folder that the server can read too; then it is asked to take them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import structlog
from attrs import define, field, frozen

from rlvr import BackendError, PrerequisiteError
from rlvr_servers.client.endpoint import MissingError, RefusedError, RequestError
from rlvr_servers.client.requests import BrokenError
from rlvr_servers.protocols.sglang import Sglang
from rlvr_servers.protocols.vllm import Vllm
from rlvr_servers.served_policy import ADAPTERS

ADAPTER = "adapter_config.json"

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

    @property
    def is_adapter(self) -> bool:
        """Whether it is an adapter, to be added to the model that the server has."""
        return (self.directory / ADAPTER).is_file()


class WeightSink(Protocol):
    """A server that takes weights."""

    async def refresh(self, weights: Weights) -> None:
        """
        Have it draw from these weights from now on; no request may be under way.

        Raises:
            PrerequisiteError: The server was not started so that it takes weights.
            BackendError: It could not read them, or does not answer.
        """


@define
class VllmSink:
    """
    vLLM: `/v1/load_lora_adapter` for adapters, `reload_weights` by `/collective_rpc` for models.

    It names no version in its answers; the mismatch check of the run (`parity.probe`) shows whether
    it draws from the new weights.
    """

    protocol: Vllm
    _adapter: str = field(default="", init=False)

    async def refresh(self, weights: Weights) -> None:
        line, address = self.protocol.line, self.protocol.line.address
        if weights.is_adapter:
            name = f"{ADAPTERS}{weights.label}"
            await _take(
                line.ask(
                    address.url("/load_lora_adapter"),
                    {"lora_name": name, "lora_path": weights.seen_at, "load_inplace": True},
                    lambda _: None,
                ),
                weights,
                "vLLM",
                "start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora "
                "--max-lora-rank RANK",
                known="already been loaded",
            )
            old, self._adapter = self._adapter, name
            line.model = name
            if old and old != name:
                await _forget(line.ask(address.url("/unload_lora_adapter"), {"lora_name": old}, _n))
            return
        hint = "start it with VLLM_SERVER_DEV_MODE=1, which opens /collective_rpc"
        body = {"method": "reload_weights", "kwargs": {"weights_path": weights.seen_at}}
        await _take(line.ask(address.root("/collective_rpc"), body, _n), weights, "vLLM", hint)
        await _take(line.ask(address.root("/reset_prefix_cache"), {}, _n), weights, "vLLM", hint)


@define
class SglangSink:
    """
    SGLang: `/update_weights_from_disk` for models, `/load_lora_adapter` for adapters.

    Models get the label as their `weight_version`, which every completion names again: one drawn
    from other weights is refused.
    """

    protocol: Sglang

    async def refresh(self, weights: Weights) -> None:
        line, address = self.protocol.line, self.protocol.line.address
        if weights.is_adapter:
            name = f"{ADAPTERS}{weights.label}"
            await _take(
                line.ask(
                    address.root("/load_lora_adapter"),
                    {"lora_name": name, "lora_path": weights.seen_at},
                    _succeeded,
                ),
                weights,
                "SGLang",
                "start it with --enable-lora --max-lora-rank RANK",
                known="already",
            )
            old, self.protocol.adapter = self.protocol.adapter, name
            if old and old != name:
                await _forget(
                    line.ask(address.root("/unload_lora_adapter"), {"lora_name": old}, _n)
                )
            return
        body = {
            "model_path": weights.seen_at,
            "weight_version": weights.label,
            "flush_cache": True,
        }
        await _take(
            line.ask(address.root("/update_weights_from_disk"), body, _succeeded),
            weights,
            "SGLang",
            "serve the same architecture as the run's model, from a folder that both can read",
        )


def _n(_: Any) -> None:
    return None


def _succeeded(found: Any) -> None:
    if isinstance(found, dict) and found.get("success") is False:
        raise RefusedError(str(found.get("message") or found)[:300])
    if not isinstance(found, dict):
        raise BrokenError("the answer does not say whether the weights were taken")


async def _take(asking: Any, weights: Weights, kind: str, hint: str, known: str = "") -> None:
    try:
        await asking
    except MissingError as error:
        raise PrerequisiteError(
            f"the {kind} server was to take the weights in {weights.seen_at}.",
            f"found: {error}",
            hint,
        ) from error
    except RequestError as error:
        if known and known in str(error):
            return
        raise BackendError(
            f"the {kind} server was to take the weights in {weights.seen_at}.",
            f"found: {error}",
            "look at its log; it must be able to read that folder (servers.weights_dir, "
            f"servers.weights_seen_at); {hint}",
        ) from error


async def _forget(asking: Any) -> None:
    """Unloading an old adapter only makes room: where it fails, that is said."""
    try:
        await asking
    except RequestError as error:
        log.warning("old_adapter_stays", why=str(error)[:200])
