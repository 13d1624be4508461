"""
Makes the starter model: a small GPT-2 that has read the corpus of `starter_problems.corpus`.

    python rlvr-cvdp/starter_model/make.py --out rlvr-cvdp/rlvr_cvdp/starter/model

The first part of the training reads right answers only, which teaches Verilog and the families;
the last part reads the corpus as it is, which teaches how often each author errs. The same
arguments give the same weights on the same kind of machine.

Shapes: B rows, T tokens, C width, V vocabulary, N answer tokens of a batch.
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
from attrs import evolve
from knowledge import knowledge, summary
from torch import Tensor
from vocabulary import train_tokenizer

from rlvr_torch.models.bpe import BytePairTokenizer
from rlvr_torch.models.gpt2 import GPT2, GPT2Config
from rlvr_torch.models.gpt2_files import save_gpt2
from starter_problems.build import drafts, held_out_keys
from starter_problems.corpus import AUTHORS, Author, Example, corpus
from starter_problems.families import FAMILIES

SHAPE = GPT2Config(vocab_size=1024, n_positions=512, n_embd=192, n_layer=4, n_head=4)
LESSON_SHARES = {"careful": 0.5, "ordinary": 0.25, "sloppy": 0.25}
LESSONS = tuple(evolve(a, skill=1.0, share=LESSON_SHARES[a.style.name]) for a in AUTHORS)
POOL = 2048  # examples sorted by length at a time
WARM_UP = 60  # steps
IGNORED = -100  # cross_entropy's own mark of a token without loss

Row = tuple[list[int], int]  # tokens of prompt, answer and end; length of the prompt


def main(arguments: list[str]) -> int:
    """Train, save, and say how good the model is."""
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    texts = itertools.islice(corpus(options.seed), 6000)
    tokenizer = train_tokenizer((e.prompt + e.answer for e in texts), SHAPE.vocab_size)
    model = GPT2.new(evolve(SHAPE, vocab_size=tokenizer.vocab_size), seed=options.seed)
    optimizers = make_optimizers(model, options.lr)
    flawless = round(options.steps * options.flawless)
    batches = itertools.chain(
        itertools.islice(read(tokenizer, options.seed + 1, LESSONS, options.tokens), flawless),
        read(tokenizer, options.seed + 2, AUTHORS, options.tokens),
    )
    size = sum(value.numel() for value in model.parameters())
    print(f"{size / 1e6:.2f}M parameters, {tokenizer.vocab_size} tokens", flush=True)
    began, seen, losses = time.monotonic(), 0, 0.0
    for step, (tokens, wanted) in enumerate(itertools.islice(batches, options.steps), start=1):
        for group in itertools.chain.from_iterable(o.param_groups for o in optimizers):
            group["lr"] = options.lr * rate(step, options.steps)
        loss = answer_loss(model, tokens, wanted)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        seen += tokens.numel()
        losses += loss.item()
        if step % 50 == 0:
            speed = seen / (time.monotonic() - began)
            print(f"step {step} loss {losses / 50:.4f} tokens/s {speed:.0f}", flush=True)
            losses = 0.0
        if step % options.save_every == 0 or step == options.steps:
            save(model, tokenizer, options.out)
            print(f"step {step}: unseen: {unseen(model, tokenizer)}", flush=True)
    print(
        f"test: {summary([knowledge(model, tokenizer, d) for _, s, d in drafts() if s == 'test'])}"
    )
    print(f"{time.monotonic() - began:.0f} s, {seen / 1e6:.1f}M tokens")
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line; defaults are those of the model that ships."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="directory of the model")
    parser.add_argument("--seed", type=int, default=1, help="of the corpus and the weights")
    parser.add_argument("--steps", type=int, default=6000, help="optimiser updates")
    parser.add_argument("--tokens", type=int, default=4096, help="padded tokens a step")
    parser.add_argument("--lr", type=float, default=4e-3, help="highest learning rate")
    parser.add_argument("--flawless", type=float, default=0.75, help="share of steps without slips")
    parser.add_argument("--threads", type=int, default=2, help="of torch")
    parser.add_argument("--save-every", type=int, default=750, help="steps between saves")
    return parser.parse_args(arguments)


def rate(step: int, steps: int) -> float:
    """Share of the highest learning rate: linear warm-up, then a cosine to a hundredth."""
    if step < WARM_UP:
        return step / WARM_UP
    return 0.01 + 0.99 * (1 + math.cos(math.pi * (step - WARM_UP) / (steps - WARM_UP))) / 2


def make_optimizers(model: GPT2, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the blocks' matrices, AdamW for embeddings, norms and biases."""
    matrices = [v for n, v in model.named_parameters() if v.ndim == 2 and n.startswith("h.")]
    others = [v for n, v in model.named_parameters() if v.ndim < 2 or not n.startswith("h.")]
    return [
        torch.optim.Muon(matrices, lr=lr, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def read(
    tokenizer: BytePairTokenizer, seed: int, authors: tuple[Author, ...], size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches without end: tokens (B, T) and the next ones (B, T), like lengths together."""
    examples = corpus(seed, authors=authors)
    rng = random.Random(seed)
    while True:
        rows = encode(tokenizer, list(itertools.islice(examples, POOL)))
        rows.sort(key=lambda row: len(row[0]))
        batches: list[list[Row]] = [[]]
        for row in rows:
            if len(row[0]) * (len(batches[-1]) + 1) > size:
                batches.append([])
            batches[-1].append(row)
        rng.shuffle(batches)
        yield from map(pad, batches)


def encode(tokenizer: BytePairTokenizer, examples: list[Example]) -> list[Row]:
    """Prompt and answer apart, as they meet when sampling."""
    prompts = tokenizer.encode_batch([e.prompt for e in examples])
    answers = tokenizer.encode_batch([e.answer for e in examples])
    return [([*p, *a, tokenizer.eos_id], len(p)) for p, a in zip(prompts, answers, strict=True)]


def pad(rows: list[Row]) -> tuple[Tensor, Tensor]:
    """Rows as tokens (B, T) and what follows each (B, T), `IGNORED` for prompts and padding."""
    longest = max(len(tokens) for tokens, _ in rows) - 1
    tokens = torch.zeros(len(rows), longest, dtype=torch.long)
    wanted = torch.full((len(rows), longest), IGNORED)
    for k, (row, start) in enumerate(rows):
        tokens[k, : len(row) - 1] = torch.tensor(row[:-1])
        wanted[k, start - 1 : len(row) - 1] = torch.tensor(row[start:])
    return tokens, wanted


def answer_loss(model: GPT2, tokens: Tensor, wanted: Tensor) -> Tensor:
    """Mean cross entropy of answer tokens, in nats; matrix products in bfloat16."""
    is_answer = wanted != IGNORED
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.hidden(tokens, attend=attend_in_full)[is_answer]  # (N, C)
        logits = F.linear(hidden, model.head)  # (N, V)
    return F.cross_entropy(logits.float(), wanted[is_answer])


def attend_in_full(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention with its matrix written out: on CPUs faster in bfloat16 than the fused."""
    size = q.shape[2]
    future = torch.full((size, size), -1e4, dtype=q.dtype).triu(1)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + future  # (B, H, T, T)
    return torch.softmax(scores, -1, dtype=q.dtype) @ v


def unseen(model: GPT2, tokenizer: BytePairTokenizer) -> str:
    """Knowledge of two fresh problems a family, none of them a test problem."""
    rng = random.Random(0)
    fresh = [draw(rng) for draw in FAMILIES.values() for _ in range(2)]
    left = [draft for draft in fresh if draft.key not in held_out_keys()]
    return summary([knowledge(model, tokenizer, draft) for draft in left])


def save(model: GPT2, tokenizer: BytePairTokenizer, path: Path) -> None:
    """Write a GPT-2 directory that anyone may read, weights in float16."""
    path.mkdir(parents=True, exist_ok=True)
    save_gpt2(model, path, torch.float16, eos_id=tokenizer.eos_id)
    tokenizer.save(path)
    for file in path.iterdir():
        file.chmod(0o644)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
