"""LoRA and DoRA adapters through peft: small trained matrices beside frozen weights.

With the adapters off the same weights are the model the run started from, so a reference costs no
second copy. Adapters are never applied with dropout.

Sources: Hu et al. 2021 (arXiv:2106.09685); Liu et al. 2024, DoRA (arXiv:2402.09353).
"""

from __future__ import annotations

import contextlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from rlvr import BackendError, ConfigError
from rlvr_torch.config import TorchConfig
from rlvr_torch.models.hf.load import require
from rlvr_torch.models.hf.net import HFNet
from rlvr_torch.models.hf.vision import HFVisionNet
from rlvr_torch.models.lora.base_model import BASE_FILE, difference, named_base, save_base

ADAPTER_CONFIG = "adapter_config.json"
_ADAPTER_WEIGHTS = "adapter_model.safetensors"


def import_peft() -> Any:
    """The library; `PrerequisiteError` where it is not installed."""
    return require("peft", "LoRA was asked for (torch.lora_rank, or an adapter)")


def attach(net: HFNet, config: TorchConfig, seed: int = 0) -> None:
    """
    Freeze the model and put new adapters beside its linear layers; they change nothing yet.

    Experts of a mixture are not linear layers of their own (gpt-oss, Qwen3-MoE): there
    `all-linear` means attention only.

    Raises:
        PrerequisiteError: peft is not installed.
        ConfigError: No layer has a name that ends like one of `torch.lora_targets`.
    """
    peft = import_peft()
    targets = split_targets(config.lora_targets)
    settings = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=config.lora_rank,
        lora_alpha=config.lora_alpha or 2 * config.lora_rank,
        lora_dropout=0.0,
        target_modules="all-linear" if targets == ["all-linear"] else targets,
        exclude_modules=_outside(net),
        use_dora=config.dora,
    )
    try:
        _put_in(net, settings, seed)
    except ValueError as error:
        parts = net.model.named_modules()
        linear = (name for name, part in parts if isinstance(part, torch.nn.Linear))
        found = sorted({name.rpartition(".")[2] for name in linear})
        raise ConfigError(
            f"torch.lora_targets={config.lora_targets} was asked for\n"
            f"  found: {str(error).splitlines()[0]}\n"
            f"  linear layers of {net.name}: {', '.join(found)}"
        ) from error
    _refuse_head(net, f"torch.lora_targets={config.lora_targets}")
    net.model.eval()


def _outside(net: HFNet) -> str | None:
    """
    A pattern of modules that never get an adapter: all outside the language model.

    None: there are none.
    """
    if not isinstance(net, HFVisionNet):
        return None
    prefix = next(name for name, part in net.model.named_modules() if part is net.decoder)
    return rf"(?!{re.escape(prefix)}\.).*"


def split_targets(lora_targets: str) -> list[str]:
    """The names in `torch.lora_targets`, sorted."""
    return sorted({name.strip() for name in lora_targets.split(",") if name.strip()})


def attach_saved(net: HFNet, directory: Path, where: str, check_base: bool = True) -> None:
    """
    Freeze the model and put the adapters of a directory in, to be trained further.

    Args:
        net: The model.
        directory: What `save_adapter`, or peft, wrote.
        where: The model's path or id, to compare with the one the adapter was made for.
        check_base: False: compare shapes only.

    Raises:
        PrerequisiteError: peft is not installed.
        ConfigError: The directory holds no adapter, or one for another model.
    """
    peft = import_peft()
    described = read_adapter_config(directory)
    base = named_base(described)
    if check_base and (reason := difference(net, directory, base, where)):
        raise ConfigError(
            f"torch.adapter={directory} was asked for with the model {where}\n"
            f"  found: {reason}\n"
            f"  give the model it was trained on; if this is it, write {where} into "
            f"base_model_name_or_path of its {ADAPTER_CONFIG} and delete {BASE_FILE}"
        )
    settings = peft.LoraConfig.from_pretrained(str(directory))
    settings.inference_mode, settings.lora_dropout = False, 0.0
    settings.base_model_name_or_path = where
    try:
        _put_in(net, settings)
    except ValueError as error:
        raise _of_another(directory, where, base, str(error).splitlines()[0]) from error
    _refuse_head(net, f"torch.adapter={directory}")
    net.model.eval()
    try:
        load_adapter(net, directory)
    except BackendError as error:
        raise _of_another(directory, where, base, str(error)) from error


def _refuse_head(net: HFNet, asked: str) -> None:
    """
    Refuse adapters on the head: losses and the engine multiply by its weights and would miss them.

    Adapted embeddings whose weights are the head's as well would be merged into both.
    """
    words = net.model.get_input_embeddings()
    is_tied = getattr(getattr(words, "base_layer", words), "weight", None) is net.head
    if not isinstance(net.model.get_output_embeddings(), torch.nn.Linear):
        found = "adapters on the output head, which stays as it is"
    elif is_tied and not isinstance(words, torch.nn.Embedding):
        found = "adapters on the embeddings, whose weights are the output head's too"
    else:
        return
    raise ConfigError(
        f"{asked} was asked for\n  found: {found}\n"
        "  name other layers (torch.lora_targets=all-linear leaves both out)"
    )


def _of_another(directory: Path, where: str, base: str, reason: str) -> ConfigError:
    return ConfigError(
        f"torch.adapter={directory} was asked for with the model {where}\n"
        f"  found: the adapter (of {base or 'a model it does not name'}) does not fit: {reason}\n"
        "  try: the model it was trained on"
    )


def read_adapter_config(directory: Path) -> dict[str, Any]:
    """An adapter's configuration by peft; `ConfigError` if it is missing, damaged, or no LoRA."""
    path = directory / ADAPTER_CONFIG
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the adapter {directory} was asked for\n  found: {path} cannot be read ({error})\n"
            f"  give a folder that holds {ADAPTER_CONFIG} and {_ADAPTER_WEIGHTS}"
        ) from error
    if found.get("peft_type") != "LORA":
        raise ConfigError(f"{path}: peft_type is {found.get('peft_type')!r}; rlvr trains LORA")
    if found.get("modules_to_save"):
        raise ConfigError(
            f"{path}: modules_to_save is {found['modules_to_save']}; rlvr trains adapters only\n"
            "  merge it with peft and give the whole model"
        )
    if found.get("bias", "none") != "none":
        raise ConfigError(
            f"{path}: bias is {found['bias']!r}; rlvr trains adapters without biases, which stay "
            "on when adapters are off\n  merge it with peft and give the whole model"
        )
    return found


def save_adapter(net: HFNet, directory: Path) -> None:
    """Write adapters as `peft.PeftModel.from_pretrained` reads them, and a print of their base."""
    with quietly():
        net.adapted.save_pretrained(str(directory), save_embedding_layers=False)
    save_base(net, directory)


def load_adapter(net: HFNet, directory: Path) -> None:
    """
    Put the weights of a directory into the adapters that are there.

    Raises:
        BackendError: A file is missing or damaged, or a tensor missing, unknown or misshapen.
    """
    peft = import_peft()
    path = directory / _ADAPTER_WEIGHTS
    try:
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        raise BackendError(f"{path} cannot be read: {error}") from error
    refuse_misfits(path, found, adapter_tensors(net))
    with quietly():
        peft.set_peft_model_state_dict(net.adapted, found)


def adapter_tensors(net: HFNet) -> dict[str, Tensor]:
    """The adapters' weights by the names they are saved under."""
    with quietly():
        return import_peft().get_peft_model_state_dict(net.adapted, save_embedding_layers=False)


def refuse_misfits(path: Path, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Refuse what a file or a folder holds unless it is a tensor of its shape for each name."""
    for name, value in wanted.items():
        if name not in found:
            raise BackendError(f"{path}: tensor {name!r} is missing: it holds another model")
        if found[name].shape != value.shape:
            raise BackendError(
                f"{path}: tensor {name!r} has shape {tuple(found[name].shape)}, "
                f"this run trains one of {tuple(value.shape)}"
            )
    if unknown := sorted(set(found) - set(wanted)):
        raise BackendError(f"{path} has a tensor {unknown[0]!r} that this model has not")


@contextlib.contextmanager
def without_adapter(net: HFNet) -> Iterator[None]:
    """
    Inside, the model is the one it was before any adapter (LoRA and DoRA alike).

    Not for two threads at a time that want it differently.
    """
    if net.adapted is None:
        raise BackendError("the model has no adapter to switch off (torch.lora_rank is 0)")
    with quietly(), net.adapted.disable_adapter():
        yield


def _put_in(net: HFNet, settings: Any, seed: int = 0) -> None:
    """Add adapters; equal seeds give equal ones, and torch's own generator is left alone."""
    with torch.random.fork_rng(devices=[]), quietly():
        torch.manual_seed(seed)
        net.adapted = import_peft().get_peft_model(net.model, settings)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Switch off warnings of one library about the other."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
        warnings.filterwarnings("ignore", message="fan_in_fan_out", category=UserWarning)
        # Experts of a mixture get none (`attach`).
        warnings.filterwarnings(
            "ignore", message=".*keys did not match any targeted", category=RuntimeWarning
        )
        # Adapters on tied weights: refused here, in our own words.
        warnings.filterwarnings("ignore", message=".*tie_word_embeddings", category=UserWarning)
        yield
