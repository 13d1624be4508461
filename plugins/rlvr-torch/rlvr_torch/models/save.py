"""A net's weights on disk, in the layout that others read too.

Our GPT-2 and fully trained `hf:` models make a model directory (`gpt2:DIR`, `hf:DIR`); adapters
make what peft reads. All with the tokenizer beside them.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from rlvr import BackendError
from rlvr_torch.models.gpt2 import GPT2
from rlvr_torch.models.gpt2_files import load_gpt2, save_gpt2
from rlvr_torch.models.hf.load import quietly, read_model
from rlvr_torch.models.hf.net import HFNet
from rlvr_torch.models.interface import Net
from rlvr_torch.models.lora.adapters import load_adapter, refuse_misfits, save_adapter


class Savable(Protocol):
    """A tokenizer that can be written into a model's directory."""

    eos_id: int

    def save(self, directory: Path) -> None: ...


def save_net(net: Net, tokenizer: Savable, directory: Path) -> None:
    """
    Write weights and tokenizer into an existing directory.

    Raises:
        OSError, RuntimeError, SafetensorError: A file cannot be written (a full disk, say).
    """
    if isinstance(net, HFNet):
        if net.adapted is not None:
            save_adapter(net, directory)
        else:
            with quietly():
                net.model.save_pretrained(directory)
            save_processor(net, directory)
    elif isinstance(net, GPT2):
        save_gpt2(net, directory, eos_id=tokenizer.eos_id)
    else:
        raise BackendError(f"no way to save a {type(net).__name__} is known")
    tokenizer.save(directory)


def save_processor(net: HFNet, directory: Path) -> None:
    """Write the image processor beside a vision-language model, if it has one."""
    if net.image_processor is None:
        return
    with contextlib.suppress(BackendError), quietly():  # a model whose files never had one
        net.image_processor.processor.save_pretrained(directory)


def load_weights(net: Net, directory: Path) -> None:
    """
    Put the weights that `save_net` wrote into a net of the same shape.

    Raises:
        BackendError: A file is missing or damaged, or its model has another shape (both named).
    """
    if isinstance(net, HFNet) and net.adapted is not None:
        load_adapter(net, directory)
        return
    saved: nn.Module
    if isinstance(net, HFNet):
        saved = read_model(str(directory))
    elif isinstance(net, GPT2):
        saved = load_gpt2(directory)
    else:
        raise BackendError(f"no way to load a {type(net).__name__} is known")
    found, wanted = dict(saved.named_parameters()), dict(net.module.named_parameters())
    refuse_misfits(directory, found, wanted)
    with torch.no_grad():
        for name, value in wanted.items():
            value.copy_(found[name])
