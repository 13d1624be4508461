"""A backend's state on disk: a model directory with `training.pt` beside it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from attrs import asdict, frozen
from safetensors import SafetensorError

from rlvr.errors import BackendError, CheckpointError
from rlvr_torch.gpt2 import GPT2, GPT2Config
from rlvr_torch.tokenizer import BytePairTokenizer
from rlvr_torch.weights import load_gpt2, save_gpt2

_FILE = "training.pt"


@frozen(kw_only=True)
class TrainingState:
    """
    What continues a run besides the weights.

    `version` counts the updates made, which is also the place in the learning rate's schedule.
    `start_digest` names the weights the run started from: the reference.
    """

    version: int
    start_digest: str
    optimizer: dict[str, Any]


def write_state(
    directory: Path, model: GPT2, tokenizer: BytePairTokenizer, state: TrainingState
) -> None:
    """
    Write all files into the directory.

    Raises:
        CheckpointError: One could not be written (a full disk, say).
    """
    try:
        save_gpt2(model, directory, eos_id=tokenizer.eos_id)
        tokenizer.save(directory)
        torch.save(asdict(state, recurse=False), directory / _FILE)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"cannot write the model into {directory}: {error}") from error


def read_state(directory: Path, config: GPT2Config) -> tuple[GPT2, TrainingState]:
    """
    The weights and the state that `write_state` wrote.

    Raises:
        CheckpointError: A file is missing, damaged, or of a model of another shape.
    """
    try:
        model = load_gpt2(directory)
        found = torch.load(directory / _FILE, map_location="cpu", weights_only=True)
        state = TrainingState(**found)
    except (OSError, RuntimeError, TypeError, pickle.UnpicklingError, BackendError) as error:
        raise CheckpointError(f"cannot read the state in {directory}: {error}") from error
    if model.config != config:
        raise CheckpointError(f"{directory} holds {model.config}, this run trains {config}")
    return model, state
