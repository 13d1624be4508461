"""
The policy loss from hidden states, forward and backward: naive, TRL's, Liger's, ours.

    pip install -r requirements-bench.txt     # in an environment of its own, with rlvr in it
    python benchmarks/bench_loss.py [--vocab 50257 --rows 8 --tokens 512 --width 768]
    python benchmarks/bench_loss.py --device cuda

Each contestant gets the same hidden states, output weights, tokens, advantages and logprobs of the
sampler, and gives the GRPO loss (clipped ratio, token mean) with the gradients of hidden states and
output weights: naive through `log_softmax` of all logits, TRL through its
`selective_log_softmax`, Liger through `LigerFusedLinearGRPOLoss`, ours through
`rlvr_torch.training.fused_loss.head_pass` and the loss `grpo`. Gradients are compared with the
naive ones first.

Time: in one process, in turns, each beginning once; ratios of one round, medians over the rounds.
Memory: above what the inputs take, in a process of its own each (largest resident set; on a GPU the
most that torch allocated). A contestant that cannot run says why and is left out.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from rlvr import BuildContext, Datum

CLIP = 0.2


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--chunk", type=int, default=1024, help="torch.logprob_chunk")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    return parser.parse_args()


class Case:
    """The inputs, the same for all."""

    def __init__(self, args: argparse.Namespace) -> None:
        random = torch.Generator().manual_seed(0)
        shape = (args.rows, args.tokens)
        self.chunk = args.chunk
        device = torch.device(args.device)
        self.hidden = torch.randn(*shape, args.width, generator=random).to(device)
        self.head = (0.02 * torch.randn(args.vocab, args.width, generator=random)).to(device)
        self.ids = torch.randint(0, args.vocab, shape, generator=random).to(device)
        self.old = -10 + 0.1 * torch.randn(*shape, generator=random)  # near what such a head gives
        self.advantages = torch.randn(args.rows, generator=random)
        self.hidden.requires_grad_()
        self.head.requires_grad_()
        count = self.old.numel()
        lead = np.zeros(1)
        self.data = [
            Datum(
                tokens=np.concatenate([lead, ids]),
                mask=np.arange(args.tokens + 1) > 0,
                logprobs=np.concatenate([lead, old]),
                advantages=np.concatenate([lead, np.full(args.tokens, advantage)]),
                weights=np.concatenate([lead, np.full(args.tokens, 1 / count)]),
            )
            for ids, old, advantage in zip(
                self.ids.cpu().numpy(), self.old.numpy(), self.advantages.tolist(), strict=True
            )
        ]
        self.old, self.advantages = self.old.to(device), self.advantages.to(device)

    def clipped(self, logprobs: Tensor) -> Tensor:
        """The loss as a peer writes it."""
        ratio = (logprobs - self.old).exp()
        credit = self.advantages[:, None]
        return -torch.min(ratio * credit, ratio.clamp(1 - CLIP, 1 + CLIP) * credit).mean()


def naive(case: Case) -> Callable[[], float]:
    def work() -> float:
        logits = case.hidden @ case.head.t()
        logprobs = logits.log_softmax(-1).gather(-1, case.ids[..., None])[..., 0]
        loss = case.clipped(logprobs)
        loss.backward()
        return loss.item()

    return work


def trl(case: Case) -> Callable[[], float]:
    from trl.trainer.utils import selective_log_softmax

    def work() -> float:
        logits = case.hidden @ case.head.t()
        loss = case.clipped(selective_log_softmax(logits, case.ids))
        loss.backward()
        return loss.item()

    return work


def liger(case: Case) -> Callable[[], float]:
    from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss

    fused = LigerFusedLinearGRPOLoss(
        beta=0.0,
        epsilon_low=CLIP,
        epsilon_high=CLIP,
        loss_type="bnpo",
        use_ref_model=False,
        compiled=case.hidden.is_cuda,  # compiles the arithmetic of the ratio, not the products
    )
    mask = torch.ones_like(case.ids)

    def work() -> float:
        loss, _ = fused(
            case.hidden,
            case.head,
            case.ids,
            mask,
            case.advantages,
            old_per_token_logps=case.old,
        )
        loss.backward()
        return loss.item()

    return work


def ours(case: Case) -> Callable[[], float]:
    from rlvr_algos.losses.grpo import GrpoLoss
    from rlvr_torch.training.fused_loss import head_pass

    loss = GrpoLoss(None, BuildContext())
    net = SimpleNamespace(head=case.head, head_bias=None, logit_scale=1.0, logit_softcap=0.0)
    flat = case.hidden.flatten(0, 1)

    def work() -> float:
        found = head_pass(flat, case.data, loss, net, chunk=case.chunk)
        (_, d_hidden), (_, case.head.grad) = found.pulls
        case.hidden.grad = d_hidden.view_as(case.hidden)
        return found.loss

    return work


CONTESTANTS = {"naive": naive, "TRL": trl, "Liger": liger, "ours": ours}


def peak_mb(args: argparse.Namespace, name: str) -> float:
    """Memory above the inputs, MB, measured in a fresh process."""
    own = [sys.executable, __file__, "--memory-of", name]
    for key in ("vocab", "width", "rows", "tokens", "chunk", "threads", "device"):
        own += [f"--{key}", str(getattr(args, key))]
    return float(subprocess.run(own, check=True, capture_output=True, text=True).stdout)


def measure_memory(args: argparse.Namespace) -> None:
    case = Case(args)
    work = CONTESTANTS[args.memory_of](case)
    gc.collect()
    if args.device == "cpu":
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        before = status_mb("VmRSS")
        work()
        print(status_mb("VmHWM") - before)
        return
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    print((torch.cuda.max_memory_allocated() - before) / 2**20)


def status_mb(key: str) -> float:
    """A line of /proc/self/status, in MB; `ru_maxrss` would begin at the parent's peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def main() -> None:
    args = parse()
    torch.set_num_threads(args.threads)
    if args.memory_of:
        measure_memory(args)
        return
    case = Case(args)

    def clear() -> None:
        case.hidden.grad = case.head.grad = None

    works: dict[str, Callable[[], float]] = {}
    wanted: tuple[float, Tensor, Tensor] | None = None
    for name, make in CONTESTANTS.items():  # also the warm-up
        clear()
        try:
            work = make(case)
            loss = work()
        except Exception as error:  # a peer that is not installed or does not run here
            print(f"{name}: left out, {type(error).__name__}: {error}", file=sys.stderr)
            continue
        works[name] = work
        if wanted is None:
            wanted = (loss, case.hidden.grad, case.head.grad)
        assert abs(loss - wanted[0]) < 1e-4 * max(1.0, abs(wanted[0])), (name, loss, wanted[0])
        for mine, other in zip((case.hidden.grad, case.head.grad), wanted[1:], strict=True):
            assert (mine - other).abs().max() < 1e-4 * other.abs().max(), name
    wanted = None
    seconds: dict[str, list[float]] = {name: [] for name in works}
    names = list(works)
    for turn in range(args.rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            clear()
            if args.device != "cpu":
                torch.cuda.synchronize()
            start = time.perf_counter()
            works[name]()
            if args.device != "cpu":
                torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - start)
    clear()
    memory = {name: peak_mb(args, name) for name in works}
    fastest_peer = min(
        (n for n in names if n != "ours"), key=lambda n: statistics.median(seconds[n])
    )
    result = {
        "seconds": {name: statistics.median(found) for name, found in seconds.items()},
        "memory_mb": memory,
        "memory_ours_to_naive": memory["ours"] / memory["naive"],
        "fastest_peer": fastest_peer,
        "time_ours_to_fastest_peer": statistics.median(
            a / b for a, b in zip(seconds["ours"], seconds[fastest_peer], strict=True)
        ),
        "rounds": seconds,
        "settings": vars(args),
        "versions": {"torch": torch.__version__},
    }
    if args.json:
        print(json.dumps(result))
        return
    print(f"{'':8}{'seconds':>10}{'to ours':>10}{'MB':>10}{'to naive':>10}")
    for name in names:
        to_ours = statistics.median(
            a / b for a, b in zip(seconds[name], seconds["ours"], strict=True)
        )
        print(
            f"{name:8}{result['seconds'][name]:10.2f}{to_ours:10.2f}"
            f"{memory[name]:10.0f}{memory[name] / memory['naive']:10.2f}"
        )
    print(f"ours / {fastest_peer} (the fastest peer): {result['time_ours_to_fastest_peer']:.2f}")


if __name__ == "__main__":
    main()
