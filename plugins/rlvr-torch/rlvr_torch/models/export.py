"""`rlvr torch export`: the model of a run as a directory that other tools read."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from attrs import evolve

from rlvr import ConfigError, weights_of
from rlvr_torch.config import TorchConfig
from rlvr_torch.models.hf.load import quietly
from rlvr_torch.models.hf.source import HFSource
from rlvr_torch.models.lora.adapters import ADAPTER_CONFIG, read_adapter_config
from rlvr_torch.models.lora.adapters import quietly as quietly_peft
from rlvr_torch.models.lora.base_model import difference, named_base
from rlvr_torch.models.save import save_processor

_NOT_THE_MODEL = ("training.pt",)
_LINEAGE = "trained-on.json"
"""What the model was trained on: goes along, so that nobody evaluates on it unknowingly."""


def main(argv: Sequence[str]) -> int:
    """The subcommand; gives the exit status."""
    parser = argparse.ArgumentParser(
        prog="rlvr torch export",
        description="Write the model of a run as a directory that transformers (or peft) loads.",
        epilog="examples:\n"
        "  rlvr torch export runs/NAME --out my-model            # the last checkpoint\n"
        "  rlvr torch export runs/NAME --out my-model --merge    # LoRA added to its base\n"
        "  rlvr torch export runs/NAME/checkpoints/step-000010 --out my-adapter",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model", metavar="RUN_OR_DIR", type=Path, help="A run, a checkpoint or a model"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="Where to; empty")
    parser.add_argument("--merge", action="store_true", help="Add adapters to their base's weights")
    parser.add_argument(
        "--base", default="", metavar="PATH_OR_ID", help="The adapters' base, moved"
    )
    parser.add_argument("--json", action="store_true", help="What was written, as JSON")
    args = parser.parse_args(argv)
    found = export(args.model, args.out, merge=args.merge, base=args.base)
    print(json.dumps(found) if args.json else f"{found['kind']} in {found['out']}")
    return 0


def export(model: Path, out: Path, *, merge: bool = False, base: str = "") -> dict[str, str]:
    """
    Write a model.

    Args:
        model: A run directory (its last checkpoint), a checkpoint, or a model's own directory.
        out: A folder that is empty, or not there yet.
        merge: Write one model of base and adapters; a model without adapters is copied anyway.
        base: Where the adapters' base is now, if not where they say.

    Returns:
        `source`, `out`, and `kind`: "model", "merged model" or "adapter".

    Raises:
        ConfigError: There is no model, `out` holds something, or the base does not fit.
        CheckpointError: The run has no checkpoint.
        BackendError: The base cannot be loaded.
    """
    source = find_model(model)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(
            f"the model was to be written into {out}\n"
            f"  found: {'files in it' if out.is_dir() else 'a file'}\n  give an empty folder"
        )
    was_there = out.exists()
    out.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".writing-", dir=out))
    try:
        kind = _write(source, beside, merge, base)
        for path in beside.iterdir():
            path.rename(out / path.name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        if not was_there:
            with suppress(OSError):  # it holds the model
                out.rmdir()
    return {"source": str(source), "out": str(out), "kind": kind}


def _write(source: Path, out: Path, merge: bool, base: str) -> str:
    """Write the files; gives the kind of model that they are."""
    is_adapter = (source / ADAPTER_CONFIG).is_file()
    if is_adapter and merge:
        _merge(source, out, base)
        return "merged model"
    if is_adapter:
        read_adapter_config(source)
    for path in source.iterdir():
        if path.is_file() and path.name not in _NOT_THE_MODEL:
            shutil.copy2(path, out / path.name)
    return "adapter" if is_adapter else "model"


def find_model(path: Path) -> Path:
    """The directory with config.json or adapter_config.json; `ConfigError` where there is none."""
    spec = weights_of(str(path))
    trained = path if spec == str(path) else Path(spec.partition(":")[2])
    for folder in (trained, trained / "model"):
        if any((folder / name).is_file() for name in (ADAPTER_CONFIG, "config.json")):
            return folder
    found = "no config.json in it" if path.is_dir() else "no such folder"
    raise ConfigError(
        f"the model of {path} was asked for\n  found: {found}\n"
        "  give a run directory with a checkpoint, a checkpoint, or a model's folder"
    )


def _merge(source: Path, out: Path, base: str) -> None:
    named = named_base(read_adapter_config(source))
    where = base or named
    if not where:
        raise ConfigError(f"{source} does not name its base model\n  try: --base PATH_OR_ID")
    found = HFSource.parse(where, TorchConfig())
    print(f"merging into {where}", file=sys.stderr)
    tokenizer_at = str(source) if (source / "tokenizer_config.json").is_file() else where
    found = evolve(found, config=TorchConfig(adapter=str(source)), tokenizer_at=tokenizer_at)
    tokenizer = found.tokenizer()
    net = found.net(tokenizer.vocab_size, check_base=not base)
    if base and (reason := difference(net, source, named, found.where)):
        print(f"warning: the adapter {source}: {reason}", file=sys.stderr)
    with quietly(), quietly_peft():
        merged = net.adapted.merge_and_unload()
        merged.save_pretrained(out)
    save_processor(net, out)
    tokenizer.save(out)
    record = source / _LINEAGE
    if record.is_file():
        shutil.copy2(record, out / _LINEAGE)
