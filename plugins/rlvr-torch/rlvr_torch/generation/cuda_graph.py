"""Decoding passes captured as CUDA graphs: one launch a pass instead of one an operator.

A pass that was run a few times in the same shape is captured, and replayed from then on. It must
read and write the same tensors each time (`KVCache` with `is_static`). Not run on a GPU yet.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

_USES = 3  # passes of a shape before it is worth a capture


class StepGraphs:
    """The captured passes of one batch; where `is_on` is False, each pass is simply run."""

    def __init__(self, is_on: bool) -> None:
        self._is_on = is_on
        self._uses: dict[Hashable, int] = {}
        self._graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, Tensor]] = {}

    def run(self, shape: Hashable, step: Callable[[], Tensor]) -> Tensor:
        """
        The result of `step()`, valid until the next call.

        A pass that cannot be captured (it asks the GPU for a number, say) runs without a graph.
        """
        uses = self._uses[shape] = self._uses.get(shape, 0) + 1
        if not self._is_on or uses <= _USES:
            return step()
        if shape not in self._graphs:
            try:
                self._graphs[shape] = _capture(step)
            except RuntimeError as error:
                warnings.warn(f"decoding without CUDA graphs: {error}", RuntimeWarning, 2)
                self._is_on = False
                torch.cuda.synchronize()
                return step()
        graph, result = self._graphs[shape]
        graph.replay()
        return result


def _capture(step: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # libraries allocate what they keep before the capture
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph, result
