"""
Distillation losses, forward and backward: naive, TRL's, Liger's, ours.

    pip install -r requirements-bench.txt     # in an environment of its own, with rlvr in it
    python benchmarks/bench_distill_loss.py [--rounds 5] [--only "KL, logits"]
    python benchmarks/bench_distill_loss.py --json

Each row gives its contestants the same student and teacher, as logits or as states and output
weights, and asks for the mean divergence of B x T positions with the gradients of what is trained.
Naive: `softmax`, `log_softmax` and sums, plainly. TRL: `generalized_jsd_loss` of its GKD trainer,
and `ChunkedDivergenceFunction` from states. Liger: `LigerFusedLinearJSDLoss` with chunks of 64 and
no compiler. Losses and gradients are compared with the naive ones first.

Time: CPU-seconds of the process on one thread, in turns, the least of the rounds: the machine is
shared. Memory: above what the inputs take, in a process of its own each. A peer that is not
installed is left out aloud. Exits 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
from attrs import frozen
from torch import Tensor

from rlvr_distill.distributions.functional import divergence
from rlvr_distill.distributions.sides import HeadLogits, Sparse
from rlvr_distill.divergences.catalogue import kernel

BETA = {"KL": 0.0, "JSD": 0.5}
OURS = {"KL": "forward_kl", "JSD": "jsd"}
Work = Callable[[], Tensor]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--top", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="rows whose name begins so")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memory-of", nargs=2, metavar=("ROW", "WHO"), help=argparse.SUPPRESS)
    return parser.parse_args()


class Case:
    """The inputs of a row, the same for all; what is trained is in `leaves`."""

    def __init__(self, args: argparse.Namespace, row: Row) -> None:
        random = torch.Generator().manual_seed(0)
        self.row, self.top = row, args.top
        self.shape = (args.batch, args.tokens)
        self.count = args.batch * args.tokens
        self.live = torch.ones(self.count, dtype=torch.bool)
        if row.masked:
            self.live = torch.rand(self.count, generator=random) >= row.masked
        if row.is_fused:
            self.hidden = torch.randn(self.count, args.width, generator=random)
            self.weights = torch.randn(args.vocab, args.width, generator=random) / args.width**0.5
            self.their_hidden = torch.randn(self.count, args.width, generator=random)
            self.their_weights = torch.randn(args.vocab, args.width, generator=random)
            self.their_weights /= args.width**0.5
            self.leaves = [self.hidden] if row.is_frozen else [self.hidden, self.weights]
        else:
            self.logits = torch.randn(self.count, args.vocab, generator=random).mul_(2)
            self.theirs = torch.randn(self.count, args.vocab, generator=random).mul_(2)
            self.leaves = [self.logits]
        for leaf in self.leaves:
            leaf.requires_grad_()

    def clear(self) -> None:
        for leaf in self.leaves:
            leaf.grad = None

    def both_logits(self) -> tuple[Tensor, Tensor]:
        if self.row.is_fused:
            return self.hidden @ self.weights.t(), self.their_hidden @ self.their_weights.t()
        return self.logits, self.theirs


@frozen(kw_only=True)
class Row:
    """A line of the table; targets are shares of a peer's CPU-seconds or memory."""

    name: str
    loss: str = "KL"
    is_fused: bool = False
    is_frozen: bool = False
    is_sparse: bool = False
    masked: float = 0.0
    time: dict[str, float]
    memory: dict[str, float]
    buffers: float = 0.0  # most memory above the inputs, in (B T, V) float32; 0: no target


ROWS = (
    Row(name="KL, logits", time={"TRL": 0.30, "naive": 0.45}, memory={}, buffers=1.5),
    Row(
        name="JSD, logits",
        loss="JSD",
        time={"TRL": 0.15, "naive": 0.25},
        memory={},
        buffers=1.5,
    ),
    Row(name="KL, 80 % masked", masked=0.8, time={"ours, all": 0.6}, memory={}),
    Row(name="KL, top 64 and rest", is_sparse=True, time={"TRL": 0.2}, memory={}, buffers=1.5),
    Row(
        name="KL, fused",
        is_fused=True,
        time={"TRL": 0.55, "Liger": 0.7, "naive": 1.0},
        memory={"TRL": 0.35, "Liger": 0.6},
    ),
    Row(
        name="JSD, fused",
        loss="JSD",
        is_fused=True,
        time={"TRL": 0.35, "Liger": 0.6, "naive": 1.0},
        memory={"TRL": 0.35, "Liger": 0.6},
    ),
    Row(
        name="KL, frozen head",
        is_fused=True,
        is_frozen=True,
        time={"TRL": 0.55, "Liger": 0.7, "ours, trained": 0.85},
        memory={"TRL": 0.35, "Liger": 0.6},
    ),
    Row(
        name="KL, fused, 80 % masked",
        is_fused=True,
        masked=0.8,
        time={"ours, all": 0.35},
        memory={},
    ),
)


def naive(case: Case) -> Work:
    def work() -> Tensor:
        student, teacher = case.both_logits()
        p, log_p = teacher.softmax(-1), teacher.log_softmax(-1)
        log_q = student.log_softmax(-1)
        if case.row.loss == "KL":
            values = (p * (log_p - log_q)).sum(-1)
        else:
            q = student.softmax(-1)
            log_m = ((p + q) / 2).log()
            values = ((p * (log_p - log_m)).sum(-1) + (q * (log_q - log_m)).sum(-1)) / 2
        return values[case.live].mean()

    return work


def trl(case: Case) -> Work:
    beta = BETA[case.row.loss]
    if case.row.is_fused:
        from trl.kernels.chunked_divergence import ChunkedDivergenceFunction

        def fused() -> Tensor:
            values, _ = ChunkedDivergenceFunction.apply(
                case.hidden[case.live] if case.row.masked else case.hidden,
                case.weights,
                None,
                case.their_hidden[case.live] if case.row.masked else case.their_hidden,
                case.their_weights,
                None,
                beta,
            )
            return values.mean()

        return fused
    from trl.experimental.gkd import GKDTrainer

    labels = torch.where(case.live, 0, -100).view(case.shape) if case.row.masked else None

    def work() -> Tensor:
        shape = (*case.shape, -1)
        loss = GKDTrainer.generalized_jsd_loss(
            case.logits.view(shape), case.theirs.view(shape), labels=labels, beta=beta
        )
        # its batchmean divides by rows of the batch where nothing is masked
        return loss if case.row.masked else loss * (case.shape[0] / case.count)

    return work


def liger(case: Case) -> Work:
    if not case.row.is_fused:
        raise NotImplementedError("it has no loss of logits that runs on a CPU")
    from liger_kernel.chunked_loss import LigerFusedLinearJSDLoss

    fused = LigerFusedLinearJSDLoss(
        weight_hard_loss=0.0,
        weight_soft_loss=1.0,
        beta=BETA[case.row.loss],
        compiled=False,
        chunk_size=64,
    )
    labels = torch.where(case.live, 0, -100)

    def work() -> Tensor:
        return fused(case.hidden, case.weights, case.their_hidden, case.their_weights, labels)

    return work


def ours(case: Case, *, is_all: bool = False, is_trained: bool = False) -> Work:
    measure = kernel(OURS[case.row.loss])
    live = torch.ones_like(case.live) if is_all else case.live
    weights = live / live.sum() if case.row.masked else None
    if case.row.is_sparse:
        top = case.theirs.log_softmax(-1).topk(case.top, dim=-1)
        few = Sparse(ids=top.indices, logprobs=top.values)
    if is_trained:
        case.weights.requires_grad_()

    def work() -> Tensor:
        if case.row.is_fused:
            return divergence(
                HeadLogits(hidden=case.hidden, weights=case.weights),
                HeadLogits(hidden=case.their_hidden, weights=case.their_weights),
                measure,
                weights=weights,
            ).loss
        teacher = few if case.row.is_sparse else case.theirs
        return divergence(case.logits, teacher, measure, weights=weights).loss

    return work


MAKERS: dict[str, Callable[[Case], Work]] = {
    "naive": naive,
    "TRL": trl,
    "Liger": liger,
    "ours, all": lambda case: ours(case, is_all=True),
    "ours, trained": lambda case: ours(case, is_trained=True),
    "ours": ours,
}


def contestants(row: Row) -> list[str]:
    found = ["naive", "TRL", "Liger"] if row.is_fused else ["naive", "TRL"]
    return [*found, *(name for name in row.time if name.startswith("ours")), "ours"]


def once(case: Case, work: Work) -> float:
    """CPU-seconds of one forward and backward."""
    case.clear()
    start = time.process_time()
    work().backward()
    return time.process_time() - start


def time_row(args: argparse.Namespace, row: Row) -> dict[str, float]:
    """The least CPU-seconds of each contestant, after its loss and gradients were checked."""
    case = Case(args, row)
    works: dict[str, Work] = {}
    wanted: list[Tensor] = []
    for name in contestants(row):
        try:
            work = MAKERS[name](case)
            case.clear()
            loss = work()
            loss.backward()
        except Exception as error:  # a peer's code may raise anything; ours must not
            if name.startswith("ours"):
                raise
            print(f"{row.name}: {name} left out, {type(error).__name__}: {error}", file=sys.stderr)
            continue
        works[name] = work
        found = [loss.detach(), *(leaf.grad for leaf in case.leaves)]
        if not wanted:
            wanted = found
        is_same = not (row.is_sparse and name == "ours") and name != "ours, all"
        for mine, theirs in zip(found, wanted, strict=True) if is_same else ():
            gap = float((mine - theirs).abs().max() / theirs.abs().max())
            assert gap < 1e-5 or name == "Liger", (row.name, name, gap)
            if gap >= 1e-5:
                print(f"{row.name}: {name} differs from naive by {gap:.1e}", file=sys.stderr)
        if name == "ours, trained":
            case.weights.requires_grad_(False)
            case.weights.grad = None
    wanted = found = []
    seconds: dict[str, list[float]] = {name: [] for name in works}
    names = list(works)
    for turn in range(args.rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            if name == "ours, trained":
                case.weights.requires_grad_()
            seconds[name].append(once(case, works[name]))
            if name == "ours, trained":
                case.weights.requires_grad_(False)
                case.weights.grad = None
    return {name: min(found) for name, found in seconds.items()}


def measure_memory(args: argparse.Namespace) -> None:
    """MiB above the inputs of a row and a contestant, printed."""
    name, who = args.memory_of
    case = Case(args, next(row for row in ROWS if row.name == name))
    work = MAKERS[who](case)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = status_mib("VmRSS")
    work().backward()
    print(status_mib("VmHWM") - before)


def status_mib(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def peak_mib(args: argparse.Namespace, row: Row, who: str) -> float:
    own = [sys.executable, __file__, "--memory-of", row.name, who]
    for key in ("batch", "tokens", "vocab", "width", "top"):
        own += [f"--{key}", str(getattr(args, key))]
    return float(subprocess.run(own, check=True, capture_output=True, text=True).stdout)


def judge(
    row: Row, seconds: dict[str, float], memory: dict[str, float], buffer: float
) -> list[tuple[str, float, float]]:
    """What was found beside each target: text, ratio, target."""
    found = [
        (f"{row.name}: time to {peer}", seconds["ours"] / seconds[peer], limit)
        for peer, limit in row.time.items()
        if peer in seconds
    ]
    found += [
        (f"{row.name}: memory to {peer}", memory["ours"] / memory[peer], limit)
        for peer, limit in row.memory.items()
        if peer in memory
    ]
    if row.buffers:
        found.append((f"{row.name}: logits-sized buffers", memory["ours"] / buffer, row.buffers))
    return found


def main() -> int:
    args = parse()
    torch.set_num_threads(1)
    if args.memory_of:
        measure_memory(args)
        return 0
    buffer = args.batch * args.tokens * args.vocab * 4 / 2**20
    rows = [row for row in ROWS if row.name.startswith(args.only)]
    results, verdicts = [], []
    for row in rows:
        seconds = time_row(args, row)
        memory = {name: peak_mib(args, row, name) for name in seconds}
        verdicts += judge(row, seconds, memory, buffer)
        results.append({"row": row.name, "cpu_s": seconds, "peak_mib": memory})
        if not args.json:
            print(f"\n{row.name:24}{'CPU-s':>10}{'ours to it':>12}{'MiB':>8}{'ours to it':>12}")
            for name, found in seconds.items():
                print(
                    f"  {name:22}{found:10.3f}{seconds['ours'] / found:12.2f}"
                    f"{memory[name]:8.0f}{memory['ours'] / max(memory[name], 1e-9):12.2f}",
                    flush=True,
                )
    missed = [(text, ratio, limit) for text, ratio, limit in verdicts if ratio > limit]
    if args.json:
        print(json.dumps({"rows": results, "verdicts": verdicts, "settings": vars(args)}))
    else:
        print(f"\none (B T, V) of float32: {buffer:.1f} MiB; torch {torch.__version__}\n")
        for text, ratio, limit in verdicts:
            print(f"{'missed' if ratio > limit else 'met':8}{text:48}{ratio:6.2f} of {limit:.2f}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
