r"""
Makes the models of the house: a small GPT-2 that has read the solver's lessons.

    python starter_model/make.py teacher --out rlvr_household/starter/teacher
    python starter_model/make.py student --out rlvr_household/starter/student

The same arguments give the same weights, bit for bit, on the same kind of machine.

Shapes: B rows, T tokens, C width, V vocabulary, N learnt tokens of a batch.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from attrs import frozen
from lessons import Piece, lessons
from torch import Tensor
from vocabulary import make_tokenizer

from rlvr_torch.models.bpe import BytePairTokenizer
from rlvr_torch.models.gpt2 import GPT2, GPT2Config
from rlvr_torch.models.gpt2_files import save_gpt2

POSITIONS = 384
POOL = 512  # lessons sorted by length at a time
IGNORED = -100  # cross_entropy's own mark of a token without loss
FLOOR = 0.02  # of the highest rate, at the end

Row = tuple[list[int], list[bool]]  # tokens, and which of them are learnt


@frozen(kw_only=True)
class Recipe:
    """
    Shape and training of a model.

    Attributes:
        steps: Optimiser updates that are taken.
        schedule: Updates after which the learning rate would be at its lowest.
        lr: The highest rate of AdamW and Muon.
    """

    layers: int
    width: int
    heads: int
    steps: int
    schedule: int
    lr: float


RECIPES = {
    "teacher": Recipe(layers=4, width=128, heads=4, steps=1500, schedule=1800, lr=4e-3),
    "student": Recipe(layers=3, width=64, heads=4, steps=400, schedule=1400, lr=4e-3),
}


def main(arguments: list[str]) -> int:
    """Train and save."""
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    recipe = RECIPES[options.model]
    steps, schedule = recipe.steps, recipe.schedule
    if options.steps is not None:
        steps = schedule = options.steps
    tokenizer = make_tokenizer()
    shape = GPT2Config(
        vocab_size=tokenizer.vocab_size,
        n_positions=POSITIONS,
        n_embd=recipe.width,
        n_layer=recipe.layers,
        n_head=recipe.heads,
    )
    model = GPT2.new(shape, seed=options.seed)
    optimizers = make_optimizers(model, recipe.lr)
    size = sum(value.numel() for value in model.parameters())
    print(f"{size / 1e6:.3f}M parameters, {tokenizer.vocab_size} tokens", flush=True)
    began, seen, losses = time.monotonic(), 0, 0.0
    batches = read(tokenizer, options)
    for step, (tokens, wanted) in enumerate(itertools.islice(batches, steps), start=1):
        for group in itertools.chain.from_iterable(o.param_groups for o in optimizers):
            group["lr"] = recipe.lr * rate(step, schedule, options.warm_up)
        loss = lesson_loss(model, tokens, wanted)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        seen += tokens.numel()
        losses += loss.item()
        if step % 50 == 0:
            took = time.monotonic() - began
            print(f"step {step} loss {losses / 50:.4f} tokens/s {seen / took:.0f}", flush=True)
            losses = 0.0
        if step == steps or step % options.save_every == 0:
            save(model, tokenizer, options.out)
    print(f"{time.monotonic() - began:.0f} s, {seen / 1e6:.2f}M tokens")
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line; defaults are those of the models that ship."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", choices=list(RECIPES), help="which shape and training")
    parser.add_argument("--out", type=Path, required=True, help="directory of the model")
    parser.add_argument("--seed", type=int, default=1, help="of the lessons and the weights")
    parser.add_argument("--steps", type=int, help="optimiser updates; default: the recipe's")
    parser.add_argument("--tokens", type=int, default=4096, help="padded tokens a step")
    parser.add_argument("--mistakes", type=float, default=0.25, help="share in half of the lessons")
    parser.add_argument("--warm-up", type=int, default=40, help="steps")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--save-every", type=int, default=300, help="steps between saves")
    return parser.parse_args(arguments)


def rate(step: int, schedule: int, warm_up: int) -> float:
    """Share of the highest learning rate: linear warm-up, then a cosine."""
    cosine = (1 + math.cos(math.pi * step / schedule)) / 2
    return min(step / warm_up, 1.0) * (FLOOR + (1 - FLOOR) * cosine)


def make_optimizers(model: GPT2, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the blocks' matrices, AdamW for embeddings, norms and biases."""
    matrices = [v for n, v in model.named_parameters() if v.ndim == 2 and n.startswith("h.")]
    others = [v for n, v in model.named_parameters() if v.ndim < 2 or not n.startswith("h.")]
    return [
        torch.optim.Muon(matrices, lr=lr, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def read(
    tokenizer: BytePairTokenizer, options: argparse.Namespace
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches without end: tokens (B, T) and the next ones (B, T), like lengths together."""
    source = lessons(options.seed, options.mistakes)
    rng = random.Random(options.seed)
    while True:
        rows = [encode(tokenizer, one) for one in itertools.islice(source, POOL)]
        rows = sorted((r for r in rows if len(r[0]) <= POSITIONS), key=lambda r: len(r[0]))
        batches: list[list[Row]] = [[]]
        for row in rows:
            if len(row[0]) * (len(batches[-1]) + 1) > options.tokens:
                batches.append([])
            batches[-1].append(row)
        rng.shuffle(batches)
        yield from map(pad, batches)


def encode(tokenizer: BytePairTokenizer, pieces: list[Piece]) -> Row:
    """The pieces apart, as they meet when sampling."""
    encoded = tokenizer.encode_batch([piece.text for piece in pieces])
    tokens = list(itertools.chain.from_iterable(encoded))
    learnt = [p.is_learnt for p, ids in zip(pieces, encoded, strict=True) for _ in ids]
    return tokens, learnt


def pad(rows: list[Row]) -> tuple[Tensor, Tensor]:
    """Rows as tokens (B, T) and what follows each (B, T), `IGNORED` where nothing is learnt."""
    longest = max(len(tokens) for tokens, _ in rows) - 1
    tokens = torch.zeros(len(rows), longest, dtype=torch.long)
    wanted = torch.full((len(rows), longest), IGNORED)
    for k, (row, learnt) in enumerate(rows):
        size = len(row) - 1
        tokens[k, :size] = torch.tensor(row[:-1])
        after = torch.tensor(row[1:])
        wanted[k, :size] = torch.where(torch.tensor(learnt[1:]), after, IGNORED)
    return tokens, wanted


def lesson_loss(model: GPT2, tokens: Tensor, wanted: Tensor) -> Tensor:
    """Mean cross entropy of learnt tokens, in nats."""
    is_learnt = wanted != IGNORED
    hidden = model.hidden(tokens)[is_learnt]  # (N, C)
    return F.cross_entropy(F.linear(hidden, model.head), wanted[is_learnt])


def save(model: GPT2, tokenizer: BytePairTokenizer, path: Path) -> None:
    """Write a GPT-2 directory that anyone may read, weights in float16."""
    path.mkdir(parents=True, exist_ok=True)
    save_gpt2(model, path, torch.float16, eos_id=tokenizer.eos_id)
    tokenizer.save(path)
    for file in path.iterdir():
        file.chmod(0o644)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
