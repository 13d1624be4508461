"""Decoding passes captured once and replayed: one launch a pass in place of one an operator.

A pass that was run a few times in one shape is captured, and replayed from then on. It must read
and write the same memory each time, and leave its results there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import torch
from torch import Tensor

_USES = 3  # passes of a shape before it is worth a capture


class Capture:
    """
    The way a device replays work and copies results to the host; here: computes each time.

    Attributes:
        is_on: Whether passes are captured; not again after one that could not be.
    """

    is_on = True

    def record(self, step: Callable[[], None]) -> Callable[[], None]:
        """
        A function that repeats `step` on the same memory.

        Raises:
            RuntimeError: The device cannot capture it.
        """
        return step

    def fetch(self, values: Tensor) -> Callable[[], np.ndarray]:
        """Begin to copy values, as they are now, to the host; the result waits for them."""
        copy = values.clone()
        return lambda: copy.cpu().numpy()

    def send(self, values: np.ndarray, target: Tensor) -> None:
        """Copy the host's numbers, as they are now, into a tensor; the host does not wait."""
        target.copy_(torch.from_numpy(values))

    def clear(self) -> None:
        """Free everything that was recorded."""


class CUDACapture(Capture):
    """CUDA graphs that share one pool of memory. Not run on a GPU yet."""

    def __init__(self) -> None:
        self._pool: Any = None
        self._side: Any = None  # one stream for all: cuBLAS keeps a workspace for each

    def record(self, step: Callable[[], None]) -> Callable[[], None]:
        self._side = side = self._side or torch.cuda.Stream()
        current = torch.cuda.current_stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):  # libraries allocate what they keep before the capture
            step()
        current.wait_stream(side)
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the card meanwhile: a teacher, say.
        capture = torch.cuda.graph(
            graph, pool=self._pool, stream=side, capture_error_mode="thread_local"
        )
        try:
            with capture:
                step()
        except RuntimeError:
            torch.cuda.set_stream(current)  # PyTorch leaves the other one where a capture fails
            torch.cuda.synchronize()
            raise
        return graph.replay

    def fetch(self, values: Tensor) -> Callable[[], np.ndarray]:
        host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        host.copy_(values, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()

        def wait() -> np.ndarray:
            arrived.synchronize()
            return host.numpy()

        return wait

    def send(self, values: np.ndarray, target: Tensor) -> None:
        host = torch.empty(target.shape, dtype=target.dtype, pin_memory=True)
        target.copy_(host.copy_(torch.from_numpy(values)), non_blocking=True)

    def clear(self) -> None:
        self._pool = None  # a pool whose graphs are all gone takes no new ones


class StepGraphs:
    """
    The captured passes of an engine, by shape.

    Attributes:
        captures: Passes captured so far.
    """

    def __init__(self, capture: Capture) -> None:
        self.captures = 0
        self._capture = capture
        self._uses: dict[Hashable, int] = {}
        self._replays: dict[Hashable, Callable[[], None]] = {}
        self._memory: Hashable = None

    def run(self, shape: Hashable, memory: Hashable, step: Callable[[], None]) -> None:
        """
        Do `step()`, which leaves its results where it always does.

        A pass that cannot be captured (it asks the GPU for a number, say) runs without a graph.

        Args:
            shape: All sizes that the pass depends on.
            memory: Where its tensors lie; what was captured for another memory is forgotten.
            step: The pass. Done twice it gives the same.
        """
        if memory != self._memory:
            self.clear()
            self._memory = memory
        replay = self._replays.get(shape)
        if replay is None:
            replay = self._record(shape, step)
        replay()

    def clear(self) -> None:
        """Forget all captures: what they read and wrote is gone."""
        self._replays.clear()
        self._uses.clear()
        self._capture.clear()

    def _record(self, shape: Hashable, step: Callable[[], None]) -> Callable[[], None]:
        uses = self._uses[shape] = self._uses.get(shape, 0) + 1
        if not self._capture.is_on or uses <= _USES:
            return step
        try:
            replay = self._capture.record(step)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            warnings.warn(f"decoding without CUDA graphs: {error}", RuntimeWarning, 2)
            self._capture.is_on = False  # PyTorch does not free what a failed capture took
            return step
        self.captures += 1
        self._replays[shape] = replay
        return replay
