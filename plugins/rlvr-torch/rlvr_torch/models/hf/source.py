"""The source of an `hf:` model: weights, tokenizer and adapters, each time the same."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from attrs import evolve, frozen

from rlvr import BackendError, ConfigError
from rlvr_torch.config import TorchConfig
from rlvr_torch.models.hf.load import load_net
from rlvr_torch.models.hf.net import HFNet
from rlvr_torch.models.hf.tokenizer import HFTokenizer
from rlvr_torch.models.hf.vision import HFVisionNet
from rlvr_torch.models.lora.adapters import (
    ADAPTER_CONFIG,
    attach,
    attach_saved,
    read_adapter_config,
    split_targets,
)
from rlvr_torch.models.lora.base_model import named_base

_HUB_ID = re.compile(r"(?=.{1,96}\Z)[\w-][\w.-]*(/[\w.-]+)?")
_NOTHING = "no such folder"
_OF_A_MODEL = ("config.json", ADAPTER_CONFIG, "tokenizer.json", "vocab.json")
"""Files of which at least one is in a model's folder, even in a damaged one."""


def found_instead(directory: Path) -> str:
    """What stands where a model's folder was to be, "" where one may be there."""
    try:
        if not directory.is_dir():
            return "a file" if directory.exists() else _NOTHING
    except OSError as error:  # a name that is too long, a folder that nobody may look into
        return str(error.strerror)
    if any((directory / name).is_file() for name in _OF_A_MODEL):
        return ""
    if (directory / "run.json").is_file():
        return f"the folder of a run, which is named without its kind: --model {directory}"
    return "a folder without config.json"


@frozen(kw_only=True)
class HFSource:
    """An `hf:PATH_OR_ID` with the options that change what is loaded."""

    where: str  # directory or hub id of the whole model
    tokenizer_at: str  # directory or hub id of the tokenizer
    config: TorchConfig
    seed: int = 0  # of new adapters

    @classmethod
    def parse(cls, where: str, config: TorchConfig, seed: int = 0) -> HFSource:
        """
        Read what stands behind `hf:`; a directory of adapters stands for its base with them.

        Raises:
            ConfigError: It is no directory and cannot be an id of the hub; or options contradict
                each other.
        """
        directory = Path(where).expanduser()
        found = found_instead(directory)
        if found and (found != _NOTHING or not _HUB_ID.fullmatch(where)):
            raise ConfigError(
                f"the model 'hf:{where}' was asked for\n  found: {found}\n"
                "  give the folder that holds config.json, model.safetensors and "
                "tokenizer.json, or an id of the hub (OWNER/NAME, at most 96 characters)"
            )
        if found:
            return cls(where=where, tokenizer_at=where, config=check_lora(config), seed=seed)
        where = tokenizer_at = str(directory.resolve())  # what adapters will name as their base
        if (directory / ADAPTER_CONFIG).is_file() and not (directory / "config.json").is_file():
            if config.adapter:
                raise ConfigError(
                    f"the model 'hf:{where}' is an adapter, and torch.adapter={config.adapter} "
                    "is another one\n  give one of them"
                )
            base = named_base(read_adapter_config(directory))
            if not base:
                raise ConfigError(
                    f"the model 'hf:{where}' is an adapter that does not name its base\n"
                    f"  try: --model hf:BASE torch.adapter={where}"
                )
            has_tokenizer = (directory / "tokenizer_config.json").is_file()
            tokenizer_at = where if has_tokenizer else base
            where, config = base, evolve(config, adapter=where)
        return cls(where=where, tokenizer_at=tokenizer_at, config=check_lora(config), seed=seed)

    def tokenizer(self) -> HFTokenizer:
        return HFTokenizer.load(self.tokenizer_at, self.where, self.config.template)

    def net(
        self, vocab_size: int, device: torch.device | None = None, *, check_base: bool = True
    ) -> HFNet:
        """
        The start weights, with adapters where they were asked for.

        With adapters, frozen weights are stored in `torch.dtype` and trained ones in float32;
        without, all are in float32. They are on `device`, else on the CPU. `check_base` False takes
        adapters of another base, if all shapes fit.

        Raises:
            BackendError: See `load_net`; or the model knows fewer tokens than `vocab_size`.
            ConfigError: An adapter does not fit.
        """
        config = self.config
        has_adapter = bool(config.lora_rank or config.adapter)
        is_half = has_adapter and config.dtype == "bfloat16"
        dtype = torch.bfloat16 if is_half else torch.float32
        bits = 4 if config.quantize == "4bit" else 0
        net = load_net(self.where, dtype=dtype, bits=bits, device=device)
        if net.vocab_size < vocab_size:
            raise BackendError(
                f"{self.where}: the tokenizer has {vocab_size} tokens, "
                f"the model only {net.vocab_size}: they do not belong together"
            )
        if isinstance(net, HFVisionNet) and config.vision == "frozen":
            net.freeze_vision()
        if config.adapter:
            attach_saved(net, Path(config.adapter).expanduser(), self.where, check_base)
        elif config.lora_rank:
            attach(net, config, self.seed)
        return net


def check_lora(config: TorchConfig) -> TorchConfig:
    """The same options; `ConfigError` where one would be ignored, or contradicts another."""
    has_adapter = bool(config.lora_rank or config.adapter)
    idle = {
        "torch.dora=true": config.dora,
        f"torch.lora_alpha={config.lora_alpha:g}": config.lora_alpha,
        f"torch.lora_targets={config.lora_targets}": config.lora_targets != "all-linear",
        "torch.quantize=4bit": config.quantize != "none",
        "torch.reference=adapter-off": config.reference == "adapter-off",
    }
    for option, is_set in idle.items():
        if is_set and not has_adapter:
            raise ConfigError(
                f"{option} was asked for\n  found: all weights are trained (torch.lora_rank=0)\n"
                "  try: torch.lora_rank=16"
            )
    if has_adapter and config.vision == "trained":
        raise ConfigError(
            "torch.vision=trained was asked for\n  found: adapters, which go beside layers of the "
            "language model only\n  try: torch.lora_rank=0, or torch.vision=frozen"
        )
    if config.adapter:
        saved = read_adapter_config(Path(config.adapter).expanduser())
        layers = saved.get("target_modules") or ()
        if not isinstance(layers, str):  # names, which peft may have spelled out layer by layer
            layers = ",".join(sorted({name.rpartition(".")[2] for name in layers}))
        asked = ",".join(split_targets(config.lora_targets))
        for option, given, found in (
            ("torch.lora_rank", config.lora_rank, saved.get("r")),
            ("torch.lora_alpha", config.lora_alpha, saved.get("lora_alpha")),
            ("torch.dora", config.dora, bool(saved.get("use_dora"))),
            ("torch.lora_targets", asked if asked != "all-linear" else "", layers),
        ):
            if given and given != found:
                raise ConfigError(
                    f"{option}={given} was asked for with torch.adapter={config.adapter}\n"
                    f"  found: the adapter has {found}\n  leave {option} out"
                )
    return config
