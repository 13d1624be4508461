r"""
Makes the starter model: a small GPT-2 that has read positions of shallow games.

    python rlvr-chess/starter_model/make.py --positions games.jsonl --held-out shipped.fen \
        --out rlvr-chess/rlvr_chess/starter/model

Half of what it reads are policy lines, half environment answers; the positions that ship for
reinforcement learning are left out, and so are their colour flips. The same arguments give the
same weights on the same kind of machine, except with `--minutes`.

Shapes: B rows, T tokens, C width, V vocabulary, N answer tokens of a batch.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from hints import IGNORED, Hints, Widths
from lessons import lessons, read_positions
from torch import Tensor, distributed, nn
from vocabulary import make_tokenizer

from rlvr_chess.fen import four_fields
from rlvr_torch.gpt2 import GPT2, GPT2Config
from rlvr_torch.tokenizer import BytePairTokenizer
from rlvr_torch.weights import load_gpt2, save_gpt2

POOL = 2048  # lessons sorted by length at a time

Row = tuple[list[int], int]  # tokens of prompt, answer and end; length of the prompt
Batch = tuple[Any, Any, Any, Any]  # (B, T) each: tokens, next tokens, squares, sources


def main(arguments: list[str]) -> int:
    """Train on all processes; the first one saves and says how it goes."""
    options = parse(arguments)
    context = multiprocessing.get_context("spawn")
    port = random.SystemRandom().randint(20000, 60000)
    ranks = range(1, options.processes)
    others = [context.Process(target=train, args=(r, port, options), daemon=True) for r in ranks]
    for process in others:
        process.start()
    train(0, port, options)
    for process in others:
        process.join()
    return 0


def train(rank: int, port: int, options: argparse.Namespace) -> None:
    """One process: its own lessons, the same weights as the others'."""
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", address, rank=rank, world_size=options.processes)
    tokenizer = make_tokenizer()
    shape = GPT2Config(
        vocab_size=tokenizer.vocab_size,
        n_positions=256,
        n_embd=options.width,
        n_layer=options.layers,
        n_head=options.heads,
    )
    model = load_gpt2(options.start) if options.start else GPT2.new(shape, seed=options.seed)
    torch.manual_seed(options.seed)
    hints = Hints(model, options.width)
    optimizers = make_optimizers(model, hints, options.lr)
    log = Log(size=sum(value.numel() for value in model.parameters()), shown=rank == 0)
    is_done, step = False, 0
    batches = make_batches(rank, options)
    while not is_done:
        step += 1
        tokens, wanted, squares, sources = map(torch.from_numpy, next(batches))
        done = log.minutes / options.minutes if options.minutes else step / options.steps
        progress = torch.tensor(min(done, 1.0))
        distributed.broadcast(progress, 0)
        is_done = progress.item() >= 1
        for group in itertools.chain.from_iterable(o.param_groups for o in optimizers):
            group["lr"] = options.lr * rate(step / options.warm_up, progress.item())
        loss = answer_loss(model, hints, tokens, wanted)
        square, source = hints.losses(squares, sources)
        (loss + options.hint * (square + source)).backward()
        share_gradients([*model.parameters(), *hints.parameters()], options.processes)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        is_policy = bool(tokens[0, 0] == tokenizer.encode("P: ")[0])
        told = {"policy" if is_policy else "environment": loss, "square": square, "source": source}
        log.step(step, tokens.numel() * options.processes, told, progress.item())
        if rank == 0 and (is_done or step % options.save_every == 0):
            save(model, tokenizer, options.out)
    distributed.destroy_process_group()


def share_gradients(parameters: list[nn.Parameter], processes: int) -> None:
    """Mean of the processes' gradients, in place."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([g.flatten() for g in gradients])
    distributed.all_reduce(flat)
    flat /= processes
    for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


class Log:
    """Losses of the first process, by task, a line every hundred steps."""

    def __init__(self, size: int, shown: bool) -> None:
        self._shown, self._began, self._tokens = shown, time.monotonic(), 0
        self._losses: dict[str, list[float]] = defaultdict(list)
        if shown:
            print(f"{size / 1e6:.2f}M parameters", flush=True)

    @property
    def minutes(self) -> float:
        """Since the start."""
        return (time.monotonic() - self._began) / 60

    def step(self, step: int, tokens: int, losses: Mapping[str, Tensor], done: float) -> None:
        """Count a step; say so where it is due."""
        self._tokens += tokens
        for name, loss in losses.items():
            self._losses[name].append(loss.item())
        if not self._shown or (step % 50 and done < 1):
            return
        told = " ".join(f"{k} {sum(v) / len(v):.4f}" for k, v in sorted(self._losses.items()))
        speed = self._tokens / self.minutes / 60
        print(
            f"step {step} {told} tokens {self._tokens / 1e6:.1f}M, {speed:.0f}/s, "
            f"{self.minutes:.1f} minutes",
            flush=True,
        )
        self._losses.clear()


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line; defaults are those of the model that ships."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--positions", type=Path, required=True, help="JSON Lines of games.py")
    parser.add_argument("--held-out", type=Path, required=True, help="FEN list: not read")
    parser.add_argument("--out", type=Path, required=True, help="directory of the model")
    parser.add_argument("--start", type=Path, help="directory of a model to go on from")
    parser.add_argument("--seed", type=int, default=1, help="of the lessons and the weights")
    parser.add_argument("--layers", type=int, default=5, help="of the model")
    parser.add_argument("--width", type=int, default=192, help="of the model")
    parser.add_argument("--heads", type=int, default=6, help="of a layer")
    parser.add_argument("--policy", type=float, default=0.5, help="share of policy lessons")
    parser.add_argument("--hint", type=float, default=0.3, help="weight of each hint's loss")
    parser.add_argument("--steps", type=int, default=10000, help="optimiser updates")
    parser.add_argument("--minutes", type=float, default=0, help="train so long instead")
    parser.add_argument("--tokens", type=int, default=4096, help="padded tokens a step and process")
    parser.add_argument("--lr", type=float, default=4e-3, help="highest learning rate")
    parser.add_argument("--warm-up", type=int, default=100, help="steps")
    parser.add_argument("--processes", type=int, default=2, help="of one thread each")
    parser.add_argument("--save-every", type=int, default=500, help="steps between saves")
    return parser.parse_args(arguments)


def rate(warm: float, done: float) -> float:
    """Share of the highest learning rate: linear warm-up, then a cosine to a hundredth."""
    cosine = 0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2
    return min(warm, 1.0) * cosine


def make_optimizers(model: GPT2, hints: Hints, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the blocks' matrices, AdamW for embeddings, norms and biases."""
    matrices = [v for n, v in model.named_parameters() if v.ndim == 2 and n.startswith("h.")]
    others = [v for n, v in model.named_parameters() if v.ndim < 2 or not n.startswith("h.")]
    others += hints.parameters()
    return [
        torch.optim.Muon(matrices, lr=lr, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def make_batches(rank: int, options: argparse.Namespace) -> Iterator[Batch]:
    """Batches without end: rows of one task and of like lengths together."""
    tokenizer = make_tokenizer()
    widths = Widths(tokenizer)
    positions = read_positions(options.positions, held_out(options.held_out))
    source = lessons(positions, options.seed * 1000 + rank, options.policy)
    rng = random.Random(options.seed * 1000 + rank)
    while True:
        drawn = list(itertools.islice(source, POOL))
        prompts = tokenizer.encode_batch([prompt for prompt, _ in drawn])
        answers = tokenizer.encode_batch([answer for _, answer in drawn])
        rows = [([*p, *a, tokenizer.eos_id], len(p)) for p, a in zip(prompts, answers, strict=True)]
        rows.sort(key=lambda row: (row[0][0], len(row[0])))
        batches: list[list[Row]] = [[]]
        for row in rows:
            is_other = batches[-1] and batches[-1][0][0][0] != row[0][0]
            if len(row[0]) * (len(batches[-1]) + 1) > options.tokens or is_other:
                batches.append([])
            batches[-1].append(row)
        rng.shuffle(batches)
        yield from (pad(batch, widths) for batch in batches)


def held_out(path: Path) -> set[str]:
    """Four fields of each position of a FEN list."""
    return {four_fields(fen) for fen in path.read_text().splitlines()}


def pad(rows: list[Row], widths: Widths) -> Batch:
    """Tokens, what follows each, and hints; `IGNORED` where there is nothing to learn."""
    longest = max(len(tokens) for tokens, _ in rows) - 1
    tokens = np.zeros((len(rows), longest), dtype=np.int64)
    wanted, squares, sources = (np.full_like(tokens, IGNORED) for _ in range(3))
    for k, (row, start) in enumerate(rows):
        size = len(row) - 1
        tokens[k, :size] = row[:-1]
        wanted[k, start - 1 : size] = row[start:]
        squares[k, :size], sources[k, :size] = widths.hints(row[:-1], start)
    return tokens, wanted, squares, sources


def answer_loss(model: GPT2, hints: Hints, tokens: Tensor, wanted: Tensor) -> Tensor:
    """Mean cross entropy of answer tokens, in nats; matrix products in bfloat16."""
    is_answer = wanted != IGNORED
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.hidden(tokens, attend=hints.attend)[is_answer]  # (N, C)
        logits = F.linear(hidden, model.head)  # (N, V)
    return F.cross_entropy(logits.float(), wanted[is_answer])


def save(model: GPT2, tokenizer: BytePairTokenizer, path: Path) -> None:
    """Write a GPT-2 directory that anyone may read, weights in float16."""
    path.mkdir(parents=True, exist_ok=True)
    save_gpt2(model, path, torch.float16, eos_id=tokenizer.eos_id)
    tokenizer.save(path)
    for file in path.iterdir():
        file.chmod(0o644)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
