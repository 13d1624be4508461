"""The base model of an adapter: by its weights if they are recorded, else by its name.

peft notes the base's path only, and all models of rlvr's checkpoints lie in folders of one name. So
a fingerprint of the base goes beside our adapters, and a base may then be moved and renamed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rlvr_torch.models.hf.net import HFNet

BASE_FILE = "adapter-base.json"
_SAMPLES = 256


def named_base(described: Mapping[str, Any]) -> str:
    """The base that peft's description names: an absolute path, or an id of the hub."""
    base = str(described.get("base_model_name_or_path") or "")
    folder = Path(base).expanduser()
    return str(folder.resolve()) if base and folder.is_dir() else base


def save_base(net: HFNet, directory: Path) -> None:
    """Record the fingerprint of the adapters' base; weights in 4 bits have none."""
    if found := _fingerprint(net):
        record = json.dumps({"fingerprint": found}) + "\n"
        (directory / BASE_FILE).write_text(record, encoding="utf-8")


def difference(net: HFNet, directory: Path, base: str, where: str) -> str:
    """
    Why a model cannot be the base of the adapters in a directory; "" where it may be.

    Args:
        net: The model, with adapters in it or without.
        directory: The adapters.
        base: What they name as their base; "" for nothing.
        where: The model's own path or id.
    """
    recorded = _recorded(directory)
    if recorded and (found := _fingerprint(net)):
        if recorded == found:
            return ""
        named = base or "a model it does not name"
        return f"it was trained on {named}, whose weights were others ({BASE_FILE})"
    return "" if not base or _is_same_name(base, where) else f"it was trained on {base}"


@torch.no_grad()
def _fingerprint(net: HFNet) -> str:
    """
    sha256 over evenly spaced values of each frozen weight, in bfloat16; "" in 4 bits.

    So it is read in no time, and is the same in all `torch.dtype`s and under other tensor names.
    """
    found = []
    for name, value in net.module.named_parameters():
        if "lora_" in name:
            continue
        if not value.is_floating_point():
            return ""
        flat = value.detach().flatten()
        some = flat[:: max(1, len(flat) // _SAMPLES)].to(torch.bfloat16).cpu().contiguous()
        digest = hashlib.sha256(f"{tuple(value.shape)}".encode())
        digest.update(some.view(torch.int16).numpy().data)
        found.append(digest.hexdigest())
    return hashlib.sha256("".join(sorted(found)).encode()).hexdigest()


def _recorded(directory: Path) -> str:
    try:
        record: Any = json.loads((directory / BASE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # peft's own adapters have none
        return ""
    return str(record.get("fingerprint") or "") if isinstance(record, dict) else ""


def _is_same_name(base: str, where: str) -> bool:
    """
    The same path or id, or the same last part: a copy of a hub's model, or one that was moved.

    Two folders that are both here are two models, and `model` is the name of a checkpoint's.
    """
    one, other = Path(base).expanduser(), Path(where).expanduser()
    if base == where or one.resolve() == other.resolve():
        return True
    return one.name == other.name != "model" and not (one.is_dir() and other.is_dir())
