"""Model specs of the backend: where weights come from, as often as they are asked for.

    gpt2:PATH                                  a directory in Hugging Face's layout
    gpt2:new?layers=2&heads=2&width=64&positions=1024&tokenizer=PATH&seed=0
                                               from scratch; every key is optional
    hf:PATH_OR_ID                              any decoder of transformers (`hf.source`)

`tokenizer` is a `tokenizer.json` or a directory that holds one; by default tokens are bytes.
`seed` is by default the run's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from rlvr import BackendError, ConfigError
from rlvr_torch.config import TorchConfig
from rlvr_torch.models.bpe import BytePairTokenizer
from rlvr_torch.models.gpt2 import GPT2, GPT2Config
from rlvr_torch.models.gpt2_files import load_gpt2
from rlvr_torch.models.hf.net import HFNet
from rlvr_torch.models.hf.source import HFSource, check_lora, found_instead
from rlvr_torch.models.hf.tokenizer import HFTokenizer

_NUMBERS = {"layers": 2, "heads": 2, "width": 64, "positions": 1024}


@frozen(kw_only=True)
class ModelSource:
    """
    Gives the same start weights each time: from a directory, the hub, or a seed.

    `hf` is set for `hf:` models, and the other attributes then say nothing.
    """

    directory: Path | None = None
    layers: int = _NUMBERS["layers"]
    heads: int = _NUMBERS["heads"]
    width: int = _NUMBERS["width"]
    positions: int = _NUMBERS["positions"]
    tokenizer_path: Path | None = None
    seed: int = 0
    hf: HFSource | None = None

    @classmethod
    def parse(cls, spec: str, seed: int = 0, config: TorchConfig | None = None) -> ModelSource:
        """
        Read a model spec, with the options that change what is loaded.

        Raises:
            ConfigError: It is not `gpt2:PATH` of a folder, `gpt2:new?...` or `hf:PATH_OR_ID`, a key
                or value is unknown, or an option cannot be had with this model.
        """
        config = config or TorchConfig()
        scheme, _, rest = spec.partition(":")
        if scheme == "hf" and rest:
            return cls(hf=HFSource.parse(rest, config, seed))
        if scheme != "gpt2" or not rest:
            hub = f" (such as hf:{spec})" if spec and ":" not in spec else ""
            raise ConfigError(
                f"the backend 'torch' cannot use the model {spec!r}\n"
                f"  it takes hf:PATH_OR_ID{hub}, gpt2:PATH, or gpt2:new?layers=2&heads=2&width=64"
            )
        _refuse_adapters(spec, config)
        if rest != "new" and not rest.startswith("new?"):
            directory = Path(rest).expanduser()
            if found := found_instead(directory):
                raise ConfigError(
                    f"the model {spec!r} was asked for\n  found: {found}\n"
                    "  give the folder that holds config.json, model.safetensors and "
                    f"tokenizer.json; a model of Hugging Face's hub is hf:{rest}"
                )
            return cls(directory=directory)
        numbers: dict[str, Any] = {**_NUMBERS, "seed": seed}
        tokenizer_path: Path | None = None
        for pair in filter(None, rest[4:].split("&")):  # not URL decoding: a path may hold + or %
            key, _, value = pair.partition("=")
            if key == "tokenizer":
                tokenizer_path = Path(value).expanduser()
            elif key in numbers:
                numbers[key] = _whole(key, value, spec)
            else:
                known = ", ".join([*numbers, "tokenizer"])
                raise ConfigError(f"model {spec!r}: unknown key {key!r}\n  known: {known}")
        return cls(**numbers, tokenizer_path=tokenizer_path)

    def __str__(self) -> str:
        return self.hf.where if self.hf else str(self.directory or "gpt2:new")

    def tokenizer(self) -> BytePairTokenizer | HFTokenizer:
        """The tokenizer that goes with the model."""
        if self.hf is not None:
            return self.hf.tokenizer()
        path = self.directory or self.tokenizer_path
        return BytePairTokenizer.bytes_only() if path is None else BytePairTokenizer.load(path)

    def net(self, vocab_size: int, device: torch.device | None = None) -> GPT2 | HFNet:
        """
        The start weights, on the CPU (in 4 bits on the GPU), or on a device.

        Raises:
            BackendError: The model cannot be loaded, or knows fewer tokens than `vocab_size`.
            ConfigError: An adapter does not fit.
        """
        if self.hf is not None:
            return self.hf.net(vocab_size, device)
        model = self.model(vocab_size)
        return model if device is None else model.to(device)

    def model(self, vocab_size: int) -> GPT2:
        """The start weights of a `gpt2:` model, on the CPU; raises `BackendError` as `net`."""
        if self.directory is None:
            config = GPT2Config(
                vocab_size=vocab_size,
                n_positions=self.positions,
                n_embd=self.width,
                n_layer=self.layers,
                n_head=self.heads,
            )
            return GPT2.new(config, self.seed)
        model = load_gpt2(self.directory)
        if model.config.vocab_size < vocab_size:
            raise BackendError(
                f"{self.directory}: the tokenizer has {vocab_size} tokens, "
                f"the model only {model.config.vocab_size}: they do not belong together"
            )
        return model


def _refuse_adapters(spec: str, config: TorchConfig) -> None:
    if config.template:
        raise ConfigError(
            f"torch.template={','.join(config.template)} was asked for with the model {spec!r}\n"
            "  found: rlvr's own GPT-2, which has no chat template\n"
            "  leave torch.template out, or take a chat model: --model hf:PATH"
        )
    for name in ("lora_rank", "adapter", "quantize"):
        if (value := getattr(config, name)) not in (0, "", "none"):
            raise ConfigError(
                f"torch.{name}={value} was asked for with the model {spec!r}\n"
                "  found: rlvr's own GPT-2, all of whose weights are trained\n"
                "  try: the same folder through transformers, --model hf:PATH"
            )
    check_lora(config)


def _whole(key: str, value: str, spec: str) -> int:
    if not value.isdecimal() or (int(value) == 0 and key != "seed"):
        raise ConfigError(f"model {spec!r}: {key} must be a whole number, got {value!r}")
    return int(value)
