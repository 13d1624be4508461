"""Requests that come one at a time, decoded together by the thread that also trains.

Coroutines ask, one function in the backend's thread owns the running batch. Between two decoding
passes it looks at what has come and what was cancelled; a completion that has ended is delivered at
once. It works a slice of passes and then goes to the back of the thread's queue, so that training
waits for one slice at most.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from attrs import define

from rlvr import BackendError, Completion, Datum, FloatArray, GenerateRequest
from rlvr_torch.generation.interface import InferenceEngine, RunningBatch
from rlvr_torch.generation.sequence import RunningSequence
from rlvr_torch.runtime.executor import Executor


@define(eq=False)
class _Call:
    """A coroutine that waits for a completion."""

    request: GenerateRequest
    refuse: Callable[[], None] | None
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Completion]
    sequence: RunningSequence | None = None


class Inbox:
    """The one way to an engine whose weights a thread trains."""

    def __init__(
        self,
        engine: InferenceEngine,  # samples from the live weights
        executor: Executor,  # the thread; all that touches the weights runs there
        read_version: Callable[[], int],  # version of the live weights
        passes: int,  # decoding passes of a slice
    ) -> None:
        self.tokenizer, self.context_length = engine.tokenizer, engine.context_length
        self._engine, self._executor = engine, executor
        self._read_version, self._passes = read_version, passes
        self._lock = threading.Lock()  # of the next five
        self._asked: list[_Call] = []  # in this tick of the event loop
        self._new: list[_Call] = []  # for the thread to take in
        self._gone: list[_Call] = []  # cancelled
        self._is_scheduled = False  # a slice runs or waits in the thread's queue
        self._is_closed = False
        self._batch: RunningBatch | None = None  # this and the next: the thread's own
        self._calls: dict[RunningSequence, _Call] = {}

    async def generate(
        self, request: GenerateRequest, refuse: Callable[[], None] | None = None
    ) -> Completion:
        """
        One completion. Calls of one tick of the event loop are taken in together.

        Args:
            request: What is asked for. Cancelling the call frees its row.
            refuse: Called in the thread before each slice: raises where the weights may not draw
                for this request any more. None: any weights may, and the completion names them.

        Raises:
            BackendError: The request cannot be met, `refuse` said so, logits are not finite, or
                the backend was closed.
        """
        loop = asyncio.get_running_loop()
        call = _Call(request, refuse, loop, loop.create_future())
        with self._lock:
            self._asked.append(call)
        loop.call_soon(self._hand_over)
        try:
            return await call.future
        except asyncio.CancelledError:
            with self._lock:
                if self._is_scheduled:
                    self._gone.append(call)
            raise

    async def score(self, data: Sequence[Datum]) -> list[FloatArray]:
        """As `InferenceEngine.score`, between two slices of decoding."""
        return await self._executor.run(lambda _: self._engine.score(data, self._read_version()))

    def close(self) -> None:
        """Fail all waiting requests, and all later ones."""
        with self._lock:
            self._is_closed = True

    def _hand_over(self) -> None:
        with self._lock:
            self._new += self._asked
            self._asked = []
            is_idle = not self._is_scheduled and bool(self._new)
            self._is_scheduled |= is_idle
        if is_idle:
            self._schedule()

    def _schedule(self) -> None:
        try:
            self._executor.submit(self._slice)
        except RuntimeError:  # the thread has ended
            self.close()
            self._fail_all(_closed(), is_last=True)

    # In the thread

    def _slice(self) -> None:
        try:
            self._work()
        except Exception as error:  # whatever it is, it reaches all who wait
            self._fail_all(error)
        with self._lock:
            self._is_scheduled = bool(self._calls or self._new)
            self._gone = self._gone if self._is_scheduled else []
        if self._is_scheduled:
            self._schedule()
        else:
            self._batch = None  # with its cache and its copies of the weights

    def _work(self) -> None:
        for call in list(self._calls.values()):
            self._refuse(call)
        self._look()
        if not self._calls:
            return
        version = self._read_version()
        batch = self._running()
        with batch.at_work(version):
            for _ in range(self._passes):
                ended = batch.step(version)
                if batch.is_done:  # the last ones are told when the weights are free again
                    break
                self._deliver(ended)
                ended = []
                self._look()
                if not self._calls:
                    break
            ended += batch.settle()
        self._deliver(ended)

    def _running(self) -> RunningBatch:
        if self._batch is None:
            self._batch = self._engine.start()
        return self._batch

    def _refuse(self, call: _Call) -> None:
        try:
            if call.refuse is not None:
                call.refuse()
        except BackendError as error:
            self._forget(call)
            _send([(call, error)])

    def _look(self) -> None:
        """Take in new requests, drop cancelled ones."""
        if not (self._new or self._gone or self._is_closed):
            return
        with self._lock:
            new, self._new = self._new, []
            gone, self._gone = self._gone, []
        for call in new:
            self._take_in(call)
        for call in gone:
            self._forget(call)
        if self._is_closed:
            raise _closed()
        fresh = [s for call in new if (s := call.sequence) is not None and s in self._calls]
        if fresh:
            self._running().add(fresh)

    def _take_in(self, call: _Call) -> None:
        if call.future.cancelled():
            return
        try:
            if call.refuse is not None:
                call.refuse()
            sequence = self._engine.sequence(call.request)
            if not sequence.has_room:
                _send([(call, sequence.completion)])
                return
        except Exception as error:  # of this request alone
            _send([(call, error)])
            return
        sequence.names_versions = call.refuse is None
        call.sequence = sequence
        self._calls[sequence] = call

    def _forget(self, call: _Call) -> None:
        if call.sequence is not None and self._calls.pop(call.sequence, None) is not None:
            self._running().drop(call.sequence)

    def _deliver(self, ended: Iterable[RunningSequence]) -> None:
        done: list[tuple[_Call, Completion | Exception]] = []
        for sequence in ended:
            call = self._calls.pop(sequence)
            try:
                done.append((call, sequence.completion))
            except Exception as error:  # its tokens make no text
                done.append((call, error))
        _send(done)

    def _fail_all(self, error: Exception, *, is_last: bool = False) -> None:
        with self._lock:
            calls = [*self._calls.values(), *self._new, *self._asked]
            self._calls, self._new, self._asked, self._batch = {}, [], [], None
            self._is_scheduled &= not is_last
        _send([(call, error) for call in calls])


def _send(done: Sequence[tuple[_Call, Completion | Exception]]) -> None:
    for loop in dict.fromkeys(call.loop for call, _ in done):
        mine = [(call, result) for call, result in done if call.loop is loop]
        with suppress(RuntimeError):  # a loop that was closed waits for nothing
            loop.call_soon_threadsafe(_resolve, mine)


def _resolve(done: Sequence[tuple[_Call, Completion | Exception]]) -> None:
    for call, result in done:
        if call.future.done():
            continue
        if isinstance(result, Exception):
            call.future.set_exception(result)
        else:
            call.future.set_result(result)


def _closed() -> BackendError:
    return BackendError("the backend was closed while a completion was in the making")
