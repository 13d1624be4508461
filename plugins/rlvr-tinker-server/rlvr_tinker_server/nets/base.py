"""The base model a server offers: weights, tokenizer, and the names it answers to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from attrs import field, frozen

from rlvr import ConfigError
from rlvr_tinker_server.nets.adapters import AdaptedNet
from rlvr_torch.models.hf.load import load_net
from rlvr_torch.models.interface import Net
from rlvr_torch.models.source import ModelSource
from rlvr_torch.runtime.batch_threads import usable_cores
from rlvr_torch.runtime.device import choose_device
from rlvr_torch.runtime.weights_digest import weights_digest

_MARK = ".rlvr-tinker-server"
"""Says that the folder with the tokenizer may be replaced."""


@frozen(kw_only=True, eq=False)
class Base:
    """What `--model` named, loaded."""

    name: str  # what clients call it
    aliases: frozenset[
        str
    ]  # further names that mean it: the model spec, and the tokenizer's folder
    net: AdaptedNet  # the weights, frozen, with room for adapters
    tokenizer: Any
    tokenizer_at: str  # a folder here, or an id of the hub, for a client's transformers
    digest: str = field(repr=False)  # sha256 of the weights
    dtype: torch.dtype  # what matrix products are computed in

    def answers_to(self, name: str) -> bool:
        """Whether a client means this model."""
        return name == self.name or name in self.aliases


def open_base(
    spec: str,  # `hf:PATH_OR_ID`, `gpt2:PATH` or `gpt2:new?...`, as `rlvr run --model` takes them
    *,
    exports: Path,  # folder to put the tokenizer in, for clients on this machine
    name: str = "",  # what clients call it; "": the hub's id, or the name of the folder
    device: str = "auto",  # `auto`, `cpu`, `cuda` or `mps`
    # `float32` or `bfloat16`: how the frozen base is stored and multiplied (`hf:` only).
    dtype: str = "float32",
    threads: int = 0,  # of the CPU; 0: one a core
) -> Base:
    """
    Load a model.

    Raises:
        ConfigError: The spec is none, or `exports` holds a tokenizer that is not ours.
        BackendError: The model cannot be loaded.
        PrerequisiteError: The device or a library is missing.
    """
    place = choose_device(device)
    torch.set_num_threads(threads or usable_cores())
    source = ModelSource.parse(spec)
    tokenizer: Any = source.tokenizer()
    kind: torch.dtype = getattr(torch, dtype)
    net: Net
    if source.hf is not None:
        net = load_net(source.hf.where, dtype=kind)
    else:
        net = source.net(tokenizer.vocab_size)
        kind = torch.float32
    net.module.to(place)
    where = str(source)
    is_folder = Path(where).expanduser().is_dir()
    name = name or (Path(where).name if is_folder else where).replace(":", "-")
    tokenizer_at = where
    if is_folder or spec.startswith("gpt2:"):
        folder = exports / "tokenizer"
        _export(tokenizer, folder, net.positions)
        tokenizer_at = str(folder.resolve())
    return Base(
        name=name,
        aliases=frozenset({spec, spec.partition(":")[2], where, tokenizer_at}),
        net=AdaptedNet(net),
        tokenizer=tokenizer,
        tokenizer_at=tokenizer_at,
        digest=weights_digest(net.module),
        dtype=kind,
    )


def _export(tokenizer: Any, folder: Path, positions: int) -> None:
    """Write what `transformers.AutoTokenizer` reads, unless the folder is somebody else's."""
    if folder.exists() and not (folder / _MARK).is_file():
        raise ConfigError(
            f"the tokenizer was to be written to {folder}.",
            "found: something is there that no server has written",
            "try: --state with a folder of its own",
        )
    shutil.rmtree(folder, ignore_errors=True)  # of a server with another model
    folder.mkdir(parents=True)
    (folder / _MARK).touch()
    tokenizer.save(folder)
    settings = folder / "tokenizer_config.json"
    if not settings.exists():  # our own tokenizer writes tokenizer.json only
        end = tokenizer.decode([tokenizer.eos_id])
        described = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": end,
            "pad_token": end,
            "model_max_length": positions,
            "clean_up_tokenization_spaces": False,
        }
        settings.write_text(json.dumps(described, indent=1), "utf-8")
