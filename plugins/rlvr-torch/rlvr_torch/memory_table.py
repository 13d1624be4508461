"""The memory plan as tables: of one model on one card, and which model fits which card.

`rlvr torch memory` prints either; docs/gpu.md holds the second.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import structlog
import torch
from attrs import evolve, fields

from rlvr import BuildContext, ConfigError, ExitCode, RlvrError, SamplingParams, weights_of
from rlvr_torch.config import TorchConfig
from rlvr_torch.fitting import count_weights
from rlvr_torch.hardware.primitives import hardware_of
from rlvr_torch.memory_plan import GIB, RANK, MemoryPlan, Settings, fit, usable
from rlvr_torch.models.gpt2 import GPT2Config
from rlvr_torch.models.gpt2_files import read_config
from rlvr_torch.models.hf.load import load_config
from rlvr_torch.models.shape import Shape
from rlvr_torch.models.source import ModelSource
from rlvr_torch.runtime.device import choose_device, memory_of
from rlvr_torch.training.activation_checkpointing import planned_bytes

log = structlog.get_logger(__name__)

PROMPT = 1024
"""Tokens of a prompt that nobody counted."""
CARDS = (8, 12, 16, 24, 48, 80)
"""Memory of the cards in the table, GiB."""


def _qwen3(
    name: str, layers: int, width: int, inner: int, heads: int, is_tied: bool = True
) -> Shape:
    return Shape(
        name=name,
        layers=layers,
        width=width,
        inner=inner,
        heads=heads,
        key_heads=8,
        head_width=128,
        vocabulary=151936,
        is_tied=is_tied,
        has_head_norms=True,
    )


MODELS = (
    Shape.of(GPT2Config(), "GPT-2 124M"),
    _qwen3("Qwen3 0.6B", 28, 1024, 3072, 16),
    _qwen3("Qwen3 1.7B", 28, 2048, 6144, 16),
    _qwen3("Qwen3 4B", 36, 2560, 9728, 32),
    _qwen3("Qwen3 8B", 36, 4096, 12288, 32, is_tied=False),
)
"""Public configurations: those of the models' config.json, as numbers."""


def shape_of(model: str, config: TorchConfig) -> Shape:
    """
    The shape of a model spec, without its weights.

    Raises:
        ConfigError: Its configuration has no layers of a kind that the plan knows.
        BackendError: It cannot be read.
    """
    source = ModelSource.parse(model, 0, config)
    if source.hf is not None:
        text = load_config(source.hf.where).get_text_config()
        try:
            shape = Shape.of(text, model, counted=count_weights(source.hf.where))
        except (AttributeError, TypeError) as error:
            raise ConfigError(
                f"the memory plan of {model} was asked for.",
                f"found: {error}",
                "the plan knows decoders like Llama, Qwen and GPT-2; try torch.microbatch_tokens "
                "by hand",
            ) from error
        if shape.stateful and not hasattr(text, "num_experts"):
            return evolve(shape, kept=cache(partial(planned_bytes, text)))
        return shape
    if source.directory is not None:
        return Shape.of(read_config(source.directory), model)
    config_of_new = GPT2Config(
        vocab_size=source.tokenizer().vocab_size,
        n_positions=source.positions,
        n_embd=source.width,
        n_layer=source.layers,
        n_head=source.heads,
    )
    return Shape.of(config_of_new, model)


def planned(
    model: str,
    config: TorchConfig,
    memory: int,
    *,
    completion: int,
    group: int,
    has_reference: bool = False,
    said: set[str] | None = None,
) -> MemoryPlan:
    """
    The plan of a model with the options as they stand.

    Args:
        model: Model spec.
        config: The options.
        memory: Bytes of the card.
        completion: Most tokens of a completion.
        group: Completions of a prompt.
        has_reference: Whether the loss asks for the start weights.
        said: Options that must stay; None: all of them must.

    Raises:
        RlvrError: The model cannot be read.
    """
    shape = shape_of(model, config)
    names = fields(Settings)
    given: dict[str, Any] = {
        one.name: value
        for one in names
        if (value := getattr(config, one.name, "auto")) != "auto"  # what the plan may choose
    }
    fixed = set(given) if said is None else said & set(given)
    if config.adapter:
        given["lora_rank"], fixed = config.lora_rank or RANK, fixed | {"lora_rank"}
    if not model.startswith("hf:") or config.vision == "trained":
        fixed |= {"lora_rank", "quantize"}  # all weights are trained there
    kept = {name: value for name, value in given.items() if name in fixed}
    positions = shape.positions or PROMPT + completion
    completion = min(completion, positions // 2)
    settings = Settings(
        prompt=min(PROMPT, positions - completion),
        completion=completion,
        group=group,
        # The flash kernel needs bfloat16.
        copies_prompts=kept.get("dtype") == "float32" or config.attention == "plain",
        has_reference=has_reference and config.reference != "adapter-off",
    )
    return fit(shape, evolve(settings, **kept), memory, fixed=frozenset(fixed))


def say_plan(context: BuildContext, config: TorchConfig, device: torch.device) -> None:
    """
    Print the plan of a run on a device with memory of its own.

    A model that cannot be read is reported when it is.
    """
    sampling = context.sampling or SamplingParams()
    if not hardware_of(device).has_own_memory:
        return
    try:
        plan = planned(
            context.model,
            config,
            memory_of(device),
            completion=sampling.max_tokens,
            group=sampling.group_size,
        )
    except RlvrError as error:
        log.debug("no_memory_plan", reason=str(error))
        return
    print(as_text(plan), file=sys.stderr, flush=True)
    log.debug("memory_planned", peak_gib=round(plan.peak / GIB, 2), fits=plan.fits)


def as_text(plan: MemoryPlan) -> str:
    """One line a part, then the peak, the batches, and what was changed or is left to change."""
    rows = [("always", name, size) for name, size in plan.steady.items()]
    rows += [("in training", name, size) for name, size in plan.training.items()]
    rows += [("in sampling", name, size) for name, size in plan.sampling.items()]
    lines = [f"memory plan of {plan.shape.name} ({plan.shape.weights / 1e9:.2f} billion weights)"]
    lines += [f"  {when:<12} {name:<18} {_gib(size):>10}" for when, name, size in rows if size]
    word = "fits" if plan.fits else "DOES NOT FIT"
    lines.append(
        f"  {'at most':<12} {'':<18} {_gib(plan.peak):>10}  of {_gib(usable(plan.memory))} usable "
        f"({_gib(plan.memory)}): {word}"
    )
    batches = ("microbatch_tokens", "decode_rows")
    chosen = (f"torch.{name}={getattr(plan.settings, name)}" for name in batches)
    lines.append(f"  chosen: {' '.join(chosen)}")
    lines += [f"  changed: {text}" for text in plan.tried]
    if not plan.fits:
        lines.append(
            "  try: shorter prompts or sampler.max_tokens, a smaller model, or a card with more "
            "memory"
        )
    return "\n".join(lines)


def decision_table() -> str:
    """Markdown: a row a model, a column a card."""
    head = ["model", *(f"{gib} GB" for gib in CARDS)]
    rows = [head, ["---"] * len(head)]
    rows += [[shape.name, *(_cell(shape, gib) for gib in CARDS)] for shape in MODELS]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(shape: Shape, gib: int) -> str:
    plan = fit(shape, Settings(), gib * GIB)
    if not plan.fits:
        return "no"
    settings = plan.settings
    way = "QLoRA" if settings.quantize == "4bit" else "LoRA" if settings.lora_rank else "full"
    if settings.checkpointing != "none":
        way += ", checkpointing"
    return f"{way}: {settings.microbatch_tokens}, {settings.decode_rows}; {plan.peak / GIB:.1f}"


def main(argv: Sequence[str]) -> int:
    """Print the plan of a model, or the table of models and cards."""
    parser = argparse.ArgumentParser(prog="rlvr torch memory", description=main.__doc__)
    parser.add_argument("--model", help="hf:PATH_OR_ID, gpt2:PATH, or a run's directory")
    parser.add_argument("--gib", type=float, help="memory of the card (default: this machine's)")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prompt")
    parser.add_argument("--completion", type=int, default=512, help="tokens of a completion")
    parser.add_argument("--group", type=int, default=8, help="completions of a prompt")
    parser.add_argument("--lora-rank", type=int, help="adapters of that rank; 0: all weights")
    parser.add_argument("--table", action="store_true", help="which model fits which card")
    args = parser.parse_args(argv)
    if args.table:
        print(decision_table())
        return ExitCode.DONE
    if args.model is None:
        parser.error("--model or --table is needed")
    memory = int(args.gib * GIB) if args.gib else memory_of(choose_device())
    settings = Settings(prompt=args.prompt, completion=args.completion, group=args.group)
    fixed = frozenset[str]()
    if args.lora_rank is not None:
        settings, fixed = evolve(settings, lora_rank=args.lora_rank), frozenset({"lora_rank"})
    plan = fit(shape_of(weights_of(args.model), TorchConfig()), settings, memory, fixed=fixed)
    print(as_text(plan))
    return ExitCode.DONE if plan.fits else ExitCode.PREREQUISITE


def _gib(size: float) -> str:
    return f"{size / GIB:.2f} GiB"
