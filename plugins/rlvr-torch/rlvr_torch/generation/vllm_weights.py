"""Hand changed weights to vLLM in this process: all of them, or an adapter.

vLLM reads weights anew layer by layer: parameters lie on torch's "meta" device until their loaders
have all they want, and kernels then lay the layer out. What a model of vLLM's writes past its
loaders is lost there without an error; such parameters are looked for after each handover.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import structlog
from torch import Tensor

from rlvr import BackendError
from rlvr_torch.models.hf.file_weights import adapted_weights, file_weights
from rlvr_torch.models.hf.net import HFNet
from rlvr_torch.models.lora.adapters import adapter_tensors, quietly
from rlvr_torch.runtime.device import vllm_is_for_cpu

log = structlog.get_logger(__name__)

_RANKS = 1, 8, 16, 32, 64, 128, 256, 320, 512
"""Those that vLLM takes as `max_lora_rank`."""


class FullWeights:
    """
    All weights, adapters merged, under the names of the model's files.

    Attributes:
        settings: What vLLM is built with for it.
        sleep_level: 2: nothing is kept on the host, for all weights are given again.
        request: The adapter that requests name.
    """

    settings: ClassVar[dict[str, Any]] = {}
    sleep_level = 2
    request: Any = None

    def __init__(self, net: HFNet) -> None:
        self._net = net

    def give(self, llm: Any, _version: int) -> None:
        """
        Have vLLM compute with the current weights.

        Raises:
            BackendError: Parameters of vLLM's model got no weights (they are named).
            ConfigError: As `file_weights`.
        """
        worker = llm.llm_engine.model_executor.driver_worker
        model = worker.model_runner.get_model()
        owners = _owners(model)
        missed: list[str] = []
        load = model.load_weights

        def load_and_look(weights: Iterator[tuple[str, Tensor]]) -> Any:
            loaded = load(weights)
            missed.extend(_without_weights(model, owners))
            return loaded

        _prepare(model)
        # Hides the class's method until it is deleted; vLLM forgets afterwards what came.
        model.load_weights = load_and_look
        try:
            worker.reload_weights(weights_iterator=vllm_weights(self._net))
        finally:
            del model.load_weights
        if missed:
            raise BackendError(
                "vLLM was handed new weights, and some did not arrive\n"
                f"  found: none for {', '.join(missed[:4])}{' ...' * (len(missed) > 4)}\n"
                "  sample with torch.engine=own"
            )
        _lay_out_tied(model, owners)


class Adapter:
    """
    The adapter alone: vLLM adds it to its base's weights itself, in each product.

    Small updates are not lost where a merged weight would be rounded to bfloat16. Attributes as
    those of `FullWeights`; asleep, vLLM keeps the base on the host.
    """

    sleep_level = 1

    def __init__(self, net: HFNet, rank: int) -> None:
        self._net = net
        self.settings = {"enable_lora": True, "max_loras": 1, "max_lora_rank": rank}
        self.request: Any = None

    def give(self, llm: Any, version: int) -> None:
        """
        Have vLLM add the current adapter, and no older one.

        Raises:
            ValueError: vLLM does not know the adapter's kind, or leaves out modules that it is on.
        """
        lora = importlib.import_module("vllm.lora.request")
        if self.request is not None:
            llm.llm_engine.remove_lora(self.request.lora_int_id)
            self.request = None
        with TemporaryDirectory() as folder, quietly():
            self._net.adapted.save_pretrained(folder, save_embedding_layers=False)
            # Numbers begin with 1.
            request = lora.LoRARequest(f"version-{version}", version + 1, folder)
            llm.llm_engine.add_lora(request)  # vLLM holds it from here on
        if missed := _left_out(llm, request.lora_int_id, adapter_tensors(self._net)):
            llm.llm_engine.remove_lora(request.lora_int_id)
            raise ValueError(f"it leaves out {', '.join(missed[:4])}{' ...' * (len(missed) > 4)}")
        self.request = request


def _left_out(llm: Any, number: int, tensors: Iterable[str]) -> list[str]:
    """
    Modules of an adapter that vLLM does not compute with, by its own names.

    vLLM does not say so: it passes over modules that it has no layer for.

    Args:
        llm: vLLM.
        number: Of the adapter, which vLLM holds.
        tensors: The adapter's, as peft names them.
    """
    names = importlib.import_module("vllm.lora.utils")
    runner = llm.llm_engine.model_executor.driver_worker.model_runner
    manager = runner.lora_manager._adapter_manager
    mapper = getattr(manager.model, "hf_to_vllm_mapper", None)
    renames = mapper and mapper.get_rename_mapper()
    held = manager.get_adapter(number)
    applied: set[str] = set()
    for layer in manager.modules:
        if weights := held.get_lora(layer):
            parts = manager.packed_modules.get(layer, [layer])  # qkv_proj: q_proj, k_proj, v_proj
            given = weights.lora_a if isinstance(weights.lora_a, list) else [weights.lora_a]
            applied |= {part for part, one in zip(parts, given, strict=True) if one is not None}
    return sorted({names.parse_fine_tuned_lora_name(one, renames)[0] for one in tensors} - applied)


def handover_of(net: HFNet) -> FullWeights | Adapter:
    """
    The adapter, if the net has one that vLLM can add, else all weights; the log says why.

    Raises:
        ConfigError: Adapters are on experts, which neither way hands over.
    """
    if net.adapted is None:
        return FullWeights(net)
    (settings,) = net.adapted.peft_config.values()
    rank = max(settings.r, *(settings.rank_pattern or {}).values(), 0)
    if settings.use_dora:
        return merged(net, "it adds no DoRA")
    adapted_weights(net)
    if vllm_is_for_cpu() and any(
        name.endswith(".experts") for name, _ in net.model.named_modules()
    ):
        return merged(net, "on a CPU it has no kernels for experts beside adapters")
    if rank > _RANKS[-1]:
        return merged(net, f"its ranks end at {_RANKS[-1]}, and this one is {rank}")
    return Adapter(net, next(one for one in _RANKS if one >= rank))


def merged(net: HFNet, reason: str) -> FullWeights:
    """All weights, in place of an adapter; the reason is logged."""
    found = f"vLLM does not take the adapter itself: {reason.splitlines()[0]}"
    log.warning("vllm_adapter_merged", found=found, now="merged into all weights")
    return FullWeights(net)


def vllm_weights(net: HFNet) -> Iterator[tuple[str, Tensor]]:
    """`file_weights`, in the one of the forms that vLLM knows which its loaders see."""
    for name, value in file_weights(net):
        if net.name == "gpt_oss" and ".mlp.experts." in name:
            # vLLM writes gpt-oss' experts past its loaders, unless they come one by one.
            before, after = name.split(".experts.")
            for expert, one in enumerate(value):
                yield f"{before}.experts.{expert}.{after}", one
        else:
            yield name, value


def _prepare(model: Any) -> None:
    """Repeat, before a reload, what vLLM does only the first time, or outside its loaders."""
    meta = importlib.import_module("vllm.model_executor.model_loader.reload.meta")
    for skipped in (meta.SKIP_TENSORS, meta.SKIP_LOAD_TENSORS):
        skipped.add("sinks")  # gpt-oss writes them past its loaders: into the live ones
    if vllm_is_for_cpu():
        for module in model.modules():
            # Experts are packed for a CPU where their kernel is made, and only there.
            method: Any = getattr(module, "quant_method", None)
            if getattr(method, "moe_kernel", None) is not None:
                method.moe_kernel = None


def _lay_out_tied(model: Any, owners: dict[int, list[str]]) -> None:
    """Pack a tied head again on a CPU: vLLM does not renew that copy."""
    for names in owners.values() if vllm_is_for_cpu() else ():
        for name in names[1:]:
            module = model.get_submodule(name.rpartition(".")[0])
            if method := getattr(module, "quant_method", None):
                method.process_weights_after_loading(module)


def _owners(model: Any) -> dict[int, list[str]]:
    """The names of each parameter: several where it is tied."""
    owners: dict[int, list[str]] = {}
    for name, value in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(value), []).append(name)
    return owners


def _without_weights(model: Any, owners: dict[int, list[str]]) -> Iterator[str]:
    """Parameters none of whose layers was given weights."""
    reload = importlib.import_module("vllm.model_executor.model_loader.reload.layerwise")
    skipped = importlib.import_module("vllm.model_executor.model_loader.reload.meta").SKIP_TENSORS

    def arrived(name: str) -> bool:
        info = reload.get_layerwise_info(model.get_submodule(name.rpartition(".")[0]))
        return not info.can_load() or info.load_numel > 0

    for names in owners.values():
        if names[0].rpartition(".")[2] not in skipped and not any(map(arrived, names)):
            yield names[0]
