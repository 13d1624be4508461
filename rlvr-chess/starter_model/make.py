r"""
Makes the starter model: a small GPT-2 that has read positions of shallow games.

    python rlvr-chess/starter_model/make.py --positions games.jsonl --held-out shipped.fen \
        --out rlvr-chess/rlvr_chess/starter/model

Most of what it reads are policy lines, the rest environment answers; the positions that ship for
reinforcement learning are left out, and so are their colour flips. The same arguments give the
same weights, bit for bit, on the same kind of machine.

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
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from attrs import evolve, frozen
from batches import make_batches
from hints import IGNORED, Hints
from torch import Tensor, distributed, nn
from vocabulary import make_tokenizer

from rlvr_torch.models.bpe import BytePairTokenizer
from rlvr_torch.models.gpt2 import GPT2, GPT2Config
from rlvr_torch.models.gpt2_files import load_gpt2, save_gpt2

FALLS_FROM, FALLS_TO = 0.85, 0.1  # share of the steps; of the rate that the cosine ends at


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


@frozen(kw_only=True)
class Stage:
    """
    A training from a warm-up to a rate of zero.

    Attributes:
        steps: Optimiser updates.
        lr: The highest learning rate.
        policy: Share of policy lessons.
        plain: Share of environment lessons, besides those of the decks, about any legal move.
        edits: Whether the hints about the move and the next row are given.
    """

    steps: int
    lr: float
    policy: float
    plain: float
    edits: bool


STAGES = (
    Stage(steps=2200, lr=3e-3, policy=0.6, plain=0.0, edits=False),
    Stage(steps=800, lr=2e-3, policy=0.35, plain=0.0, edits=True),
    Stage(steps=900, lr=2e-3, policy=0.3, plain=0.4, edits=True),
)


def train(rank: int, port: int, options: argparse.Namespace) -> None:
    """One process: its own lessons, the same weights as the others'."""
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", address, rank=rank, world_size=options.processes)
    for number in options.stages:
        distributed.barrier()  # what the stage before has saved is there
        stage = STAGES[number - 1]
        if options.steps:
            stage = evolve(stage, steps=options.steps)
        learn(rank, number, stage, options)
    distributed.destroy_process_group()


def learn(rank: int, number: int, stage: Stage, options: argparse.Namespace) -> None:
    """Train a stage; the second one goes on from what the first one saved."""
    tokenizer = make_tokenizer()
    shape = GPT2Config(
        vocab_size=tokenizer.vocab_size,
        n_positions=256,
        n_embd=options.width,
        n_layer=options.layers,
        n_head=options.heads,
    )
    seed = options.seed + number - 1
    model = GPT2.new(shape, seed=seed) if number == 1 else load_gpt2(options.out)
    torch.manual_seed(seed)
    hints = Hints(model, options.width, edits=stage.edits)
    optimizers = make_optimizers(model, hints, stage.lr)
    log = Log(f"stage {number}", shown=rank == 0)
    batches = make_batches(seed * 1000 + rank, stage.policy, stage.plain, options)
    for step in range(1, stage.steps + 1):
        tokens, wanted, squares, places, rows = map(torch.from_numpy, next(batches))
        for group in itertools.chain.from_iterable(o.param_groups for o in optimizers):
            group["lr"] = stage.lr * rate(step, stage.steps, options.warm_up)
        loss = answer_loss(model, hints, tokens, wanted)
        told = hints.losses(squares, places)
        told |= hints.edit_losses(places, rows) if stage.edits else {}
        (loss + options.hint * sum(told.values())).backward()
        share_gradients([*model.parameters(), *hints.parameters()], options.processes)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        is_policy = bool(tokens[0, 0] == tokenizer.encode("P: ")[0])
        told["policy" if is_policy else "environment"] = loss
        is_last = step == stage.steps
        log.step(step, tokens.numel() * options.processes, told, is_last)
        if rank == 0 and (is_last or step % options.save_every == 0):
            save(model, tokenizer, options.out)


def share_gradients(parameters: list[nn.Parameter], processes: int) -> None:
    """Mean of the processes' gradients, in place."""
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = torch.cat([g.flatten() for g in gradients])
    distributed.all_reduce(flat)
    flat /= processes
    for parameter, mean in zip(parameters, flat.split([g.numel() for g in gradients]), strict=True):
        parameter.grad = mean.view_as(parameter)


class Log:
    """Losses of the first process, by task, a line every fifty steps."""

    def __init__(self, name: str, shown: bool) -> None:
        self._name, self._shown = name, shown
        self._began, self._tokens = time.monotonic(), 0
        self._losses: dict[str, list[float]] = defaultdict(list)

    def step(self, step: int, tokens: int, losses: Mapping[str, Tensor], is_last: bool) -> None:
        """Count a step; say so where it is due."""
        self._tokens += tokens
        for name, loss in losses.items():
            self._losses[name].append(loss.item())
        if not self._shown or (step % 50 and not is_last):
            return
        told = " ".join(f"{k} {sum(v) / len(v):.4f}" for k, v in sorted(self._losses.items()))
        took = time.monotonic() - self._began
        print(
            f"{self._name} step {step} {told} tokens {self._tokens / 1e6:.1f}M, "
            f"{self._tokens / took:.0f}/s, {took / 60:.1f} minutes",
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
    parser.add_argument(
        "--stages", type=int, nargs="+", default=[1, 2, 3], help="first above 1: go on from --out"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the lessons and the weights")
    parser.add_argument("--layers", type=int, default=5, help="of the model")
    parser.add_argument("--width", type=int, default=192, help="of the model")
    parser.add_argument("--heads", type=int, default=6, help="of a layer")
    parser.add_argument("--hint", type=float, default=0.3, help="weight of each hint's loss")
    parser.add_argument("--steps", type=int, help="of each stage; default: its own")
    parser.add_argument("--tokens", type=int, default=4096, help="padded tokens a step and process")
    parser.add_argument("--warm-up", type=int, default=100, help="steps")
    parser.add_argument("--processes", type=int, default=2, help="of one thread each")
    parser.add_argument("--save-every", type=int, default=250, help="steps between saves")
    return parser.parse_args(arguments)


def rate(step: int, steps: int, warm_up: int) -> float:
    """Share of the highest learning rate: up in a line, down a cosine, then in a line to zero."""
    last = round(steps * FALLS_FROM)
    if step > last:
        return FALLS_TO * (steps - step) / (steps - last)
    cosine = (1 + math.cos(math.pi * step / last)) / 2
    return min(step / warm_up, 1.0) * (FALLS_TO + (1 - FALLS_TO) * cosine)


def make_optimizers(model: GPT2, hints: Hints, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the blocks' matrices, AdamW for embeddings, norms and biases."""
    matrices = [v for n, v in model.named_parameters() if v.ndim == 2 and n.startswith("h.")]
    others = [v for n, v in model.named_parameters() if v.ndim < 2 or not n.startswith("h.")]
    others += hints.parameters()
    return [
        torch.optim.Muon(matrices, lr=lr, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]


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
