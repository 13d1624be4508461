"""Independent pieces of CPU work at the same time, each on one core.

Splitting every matrix product of a small model over cores makes the cores wait for each other
thousands of times a second, and a single busy neighbour stalls them all. `BatchThreads` splits the
*batch* instead: each thread carries its rows through the whole model alone. What a piece computes
does not depend on how many threads there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import torch

Piece = TypeVar("Piece")
Result = TypeVar("Result")

LARGE = 16_000_000
"""Weights from which on one batch fills all cores, and copies of its traffic would hurt."""


TINY = 1_000_000
"""Weights up to which a decoding pass takes one core: cores wait for each other longer than they
compute, and where another program has one of them, ten times as long (measured)."""

_PIECE_TOKENS = 1024
"""Most tokens of a micro-batch of a small model on a CPU."""


def suited_budget(device: torch.device, weights: int, most: int) -> int:
    """Tokens of a micro-batch: few for a small model on a CPU, so that each thread gets some."""
    is_small = device.type == "cpu" and weights < LARGE  # whatever the number of cores
    return min(most, _PIECE_TOKENS) if is_small else most


def usable_cores() -> int:
    """
    Cores this process may run on, at most as many as `OMP_NUM_THREADS` says.

    Where torch is given more threads than that variable, its threads wait for each other busily:
    decoding took three times the processor time (measured).
    """
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(cores, int(asked) or cores) if asked.isdecimal() else cores


def decode_cores(weights: int, threads: int = 0) -> int:
    """
    Cores over which an operation of decoding is spread, for a model of that many weights.

    It follows from the model, `usable_cores` and `torch.threads` (0: not given) alone, so a resumed
    run decodes to the same bits.
    """
    return threads or (1 if weights <= TINY else usable_cores())


class BatchThreads:
    """
    A fixed number of threads. `size` 1 works in the caller's own thread.

    With more threads, each computes on one core. `inner` is the number of cores over which torch
    spreads each operation of a single thread; None: as torch was set before.
    """

    def __init__(self, size: int = 1, inner: int | None = None) -> None:
        self.size = size
        self._inner = inner if size == 1 else 1
        self._threads: ThreadPoolExecutor | None = None
        if size > 1:
            self._threads = ThreadPoolExecutor(
                size,
                thread_name_prefix="rlvr-torch-batch",
                initializer=torch.set_num_threads,
                initargs=(1,),
            )

    @classmethod
    def suited(cls, device: torch.device, weights: int, threads: int = 0) -> BatchThreads:
        """
        The threads for a model of that many weights.

        Small models on a CPU get one thread a core. Large ones and GPUs get a single thread, whose
        matrix products torch spreads over the cores itself. Torch's threads are set accordingly
        at each call of `map`.
        """
        threads = threads or usable_cores()
        is_split = device.type == "cpu" and weights < LARGE
        return cls(threads if is_split else 1, inner=threads)

    @classmethod
    def decoding(cls, cores: int) -> BatchThreads:
        """
        The thread for decoding: one batch, each operation spread over so many cores.

        A decoding pass is hundreds of short operations. Two batches beside each other wait for the
        interpreter's lock at each of them; one batch does not.
        """
        return cls(1, inner=cores)

    def prepare(self) -> None:
        """Set torch's threads, for work in the caller's own thread."""
        if self._inner is not None:
            torch.set_num_threads(self._inner)

    def map(self, work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
        """
        Results in the order of the pieces.

        When one fails the others are waited for: nothing runs on after this has returned or raised.
        The error of the first failed piece is raised.
        """
        self.prepare()
        if self._threads is None or len(pieces) == 1:
            return [work(piece) for piece in pieces]
        futures = [self._threads.submit(work, piece) for piece in pieces]
        wait(futures)
        return [future.result() for future in futures]

    def close(self) -> None:
        """Let the threads end."""
        if self._threads is not None:
            self._threads.shutdown(wait=True)
