"""The engine of a GPU: its batches decode in one memory and replay the same captured passes."""

from __future__ import annotations

from collections.abc import Callable

import structlog
import torch
from attrs import define, field

from rlvr_torch.generation.captured.attention import TableAttention
from rlvr_torch.generation.captured.batch import CapturedBatch
from rlvr_torch.generation.captured.cache import AttentionOf
from rlvr_torch.generation.captured.graphs import Capture
from rlvr_torch.generation.captured.memory import DecodeMemory
from rlvr_torch.generation.captured.sampling import Draw, draw_rows
from rlvr_torch.generation.decode_batch import DecodeBatch, kept_dtype
from rlvr_torch.generation.decode_weights import DecodeWeights
from rlvr_torch.generation.engine import Engine

log = structlog.get_logger(__name__)


@define(eq=False, slots=False)
class CapturedEngine(Engine):
    """
    Samples from any `Net`; runs on any device, and by default captures nothing.

    One batch at a time decodes in its memory; one that begins before it is done gets its own.
    """

    _capture_of: Callable[[], Capture] = field(default=Capture, kw_only=True)
    # Attention of a decoding pass.
    _attention: AttentionOf = field(default=TableAttention, kw_only=True)
    # How tokens are drawn.
    _draw: Draw = field(default=draw_rows, kw_only=True)
    # Read what a pass has drawn while the next one runs.
    _is_late: bool = field(default=True, kw_only=True)
    # Bytes of the device that nobody uses; None: not known.
    _free_memory: Callable[[torch.device], int | None] = field(
        default=lambda device: None, kw_only=True
    )
    _capture: Capture = field(init=False)
    _memory: DecodeMemory | None = field(default=None, init=False)

    @_capture.default
    def _new_capture(self) -> Capture:
        return self._capture_of()

    def __attrs_post_init__(self) -> None:
        if self.net.has_states:
            log.warning(
                "not_captured", found="layers that keep a state beside keys (docs/torch.md)"
            )

    def start(self) -> DecodeBatch:
        if self.net.has_states:
            return super().start()
        return CapturedBatch(
            self.net,
            self._decode_weights(),
            capture=self._capture,
            lend=self._lend,
            is_late=self._is_late,
            keeps_casts=False,  # a captured pass must not keep a cast of old weights
            **self._settings,
        )

    def _decode_weights(self) -> DecodeWeights:
        """One copy for the run: captured passes read it where it lies."""
        if self._weights is None:
            self._weights = self._weights_of(self.net, self._dtype)
        return self._weights

    def _lend(self, batch: DecodeBatch) -> DecodeMemory:
        memory = self._memory
        if memory is not None and not (memory.is_whole and memory.is_free):
            memory = self._memory = None  # let go of it before the next one needs room
        if self._memory is None:
            self._memory = DecodeMemory(
                self.net,
                self._decode_weights(),
                dtype=kept_dtype(self.net, self._dtype),
                capture=self._capture,
                attention=self._attention,
                draw=self._draw,
            )
        self._memory.lend(batch)
        return self._memory

    def sleep(self) -> None:
        """
        Let the memory go where training may need it: where it is more than half of what is free.

        Passes are then captured anew in the next generation.
        """
        memory = self._memory
        free = self._free_memory(self.net.head.device)
        if memory is None or free is None or not memory.is_free:
            return
        if memory.cache.size > free / 2:
            self._memory = self._weights = None  # a copy of the head, too
