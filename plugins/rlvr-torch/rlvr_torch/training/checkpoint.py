"""A backend's state on disk: a model directory (or an adapter's) with `training.pt` beside it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from attrs import asdict, frozen
from safetensors import SafetensorError

from rlvr import BackendError, CheckpointError
from rlvr_torch.models.interface import Net
from rlvr_torch.models.save import Savable, load_weights, save_net

_FILE = "training.pt"


@frozen(kw_only=True)
class TrainingState:
    """The state besides the weights that continues a run."""

    version: int  # updates made: also the place in the learning rate's schedule
    start_digest: str  # of the weights the run started from: the reference
    optimizer: dict[str, Any]
    critic: dict[str, Any] | None = None  # the value head's weights, if any


def write_state(directory: Path, net: Net, tokenizer: Savable, state: TrainingState) -> None:
    """Write all files into the directory; `CheckpointError` where that fails (a full disk, say)."""
    try:
        save_net(net, tokenizer, directory)
        torch.save(asdict(state, recurse=False), directory / _FILE)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"cannot write the model into {directory}: {error}") from error


def read_state(directory: Path) -> TrainingState:
    """
    Read what `write_state` wrote beside the weights.

    `CheckpointError` where it is missing or damaged.
    """
    try:
        found = torch.load(directory / _FILE, map_location="cpu", weights_only=True)
        return TrainingState(**found)
    except (OSError, RuntimeError, TypeError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"cannot read the state in {directory}: {error}") from error


def read_weights(directory: Path, net: Net) -> None:
    """
    Put the weights that `write_state` wrote into a net; it is as before where that fails.

    Raises:
        CheckpointError: A file is missing, damaged, or of a model of another shape.
    """
    try:
        load_weights(net, directory)
    except (OSError, BackendError) as error:
        raise CheckpointError(f"cannot read the state in {directory}: {error}") from error
