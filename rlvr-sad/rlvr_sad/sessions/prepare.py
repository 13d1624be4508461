"""Reading and tokenising many records: in parallel, by content only once, in order, streaming."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from rlvr import PrerequisiteError, Tokenizer, fingerprint
from rlvr_sad.sessions.cache import TrajectoryCache, key_of
from rlvr_sad.sessions.files import records_of
from rlvr_sad.sessions.packed import Prepared, packed, unpacked
from rlvr_sad.sessions.read import Outcome, read_record
from rlvr_sad.sessions.record import MAX_RECORD, Raw, Rejected
from rlvr_sad.tokens import Tokens, tokenise
from rlvr_sad.trajectory import AgentTrajectory

_RECORDS = 64
_BYTES = 1 << 20
LoadTokenizer = Callable[[], Tokenizer]


@frozen
class Ready:
    """
    A trajectory, with its tokens where a tokenizer was given.

    Attributes:
        key: Of its record in the cache; empty without one.
        index: Its place among the record's trajectories.
    """

    trajectory: AgentTrajectory
    tokens: Tokens | None
    key: bytes = b""
    index: int = 0


@define
class _Batch:
    """Some records of one file; `done` are results that were there, by position."""

    source: str
    raws: list[Raw | Rejected] = field(factory=list)
    keys: list[bytes] = field(factory=list)
    done: dict[int, Prepared] = field(factory=dict)
    running: Future[list[bytes]] | None = None


def prepare(
    paths: Sequence[Path],
    *,
    load_tokenizer: LoadTokenizer | None = None,
    workers: int = 0,
    cache: TrajectoryCache | None = None,
    format_name: str = "",
    limit: int = MAX_RECORD,
) -> Iterator[Ready | Rejected]:
    """
    Trajectories of the files in order, and the refused records between them.

    At most two batches a worker are held, so memory does not grow with the corpus.

    Args:
        paths: Files.
        load_tokenizer: Gives the tokenizer; called once here and once in each worker, so it has to
            be picklable where there are workers. None: nothing is tokenised.
        workers: Processes that read and tokenise; 0: this one.
        cache: Where results are looked up and kept.
        format_name: The only format to try.
        limit: Bytes of one record, at most.

    Raises:
        ConfigError: A file cannot be opened, or the tokenizer cannot be used.
        PrerequisiteError: A worker ended without a word.
    """
    tokenizer = load_tokenizer() if load_tokenizer is not None else None
    name = fingerprint(tokenizer) if cache is not None and tokenizer is not None else ""
    pool = (
        ProcessPoolExecutor(
            workers,
            mp_context=get_context("spawn"),
            initializer=_start,
            initargs=(load_tokenizer, format_name),
        )
        if workers
        else None
    )
    waiting: deque[_Batch] = deque()
    with pool or nullcontext():
        for batch in _batches(paths, limit):
            if cache is not None:
                _look_up(batch, cache, format_name, name)
            todo = [
                r for i, r in enumerate(batch.raws) if isinstance(r, Raw) and i not in batch.done
            ]
            if pool is not None and todo:
                batch.running = pool.submit(_work, batch.source, todo)
            waiting.append(batch)
            while len(waiting) > 2 * workers:
                yield from _finished(waiting.popleft(), tokenizer, cache, format_name)
        while waiting:
            yield from _finished(waiting.popleft(), tokenizer, cache, format_name)


def prepare_record(
    raw: Raw, source: str, tokenizer: Tokenizer | None, format_name: str
) -> Prepared:
    """One record, read and tokenised."""
    outcome = read_record(raw, source, format_name)
    if tokenizer is None:
        return outcome, ()
    return outcome, tuple(tokenise(trajectory, tokenizer) for trajectory in outcome.trajectories)


def _batches(paths: Sequence[Path], limit: int) -> Iterator[_Batch]:
    for path in paths:
        batch, size = _Batch(str(path)), 0
        for raw in records_of(path, limit=limit):
            batch.raws.append(raw)
            size += len(raw.data) if isinstance(raw, Raw) else 0
            if len(batch.raws) >= _RECORDS or size >= _BYTES:
                yield batch
                batch, size = _Batch(str(path)), 0
        if batch.raws:
            yield batch


def _look_up(batch: _Batch, cache: TrajectoryCache, format_name: str, tokenizer: str) -> None:
    batch.keys = [
        key_of(raw, format_name, tokenizer) if isinstance(raw, Raw) else b"" for raw in batch.raws
    ]
    found = cache.get([key for key in batch.keys if key])
    for index, (key, raw) in enumerate(zip(batch.keys, batch.raws, strict=True)):
        if key in found and isinstance(raw, Raw):
            batch.done[index] = unpacked(found[key], raw, batch.source)


def _finished(
    batch: _Batch, tokenizer: Any, cache: TrajectoryCache | None, format_name: str
) -> Iterator[Ready | Rejected]:
    results = iter(_result(batch.running) if batch.running else ())
    fresh: dict[bytes, bytes] = {}
    for index, raw in enumerate(batch.raws):
        if isinstance(raw, Rejected):
            yield raw
            continue
        if index in batch.done:
            prepared = batch.done[index]
        elif batch.running:
            data = next(results)
            prepared = unpacked(data, raw, batch.source)
            if batch.keys:
                fresh[batch.keys[index]] = data
        else:
            prepared = prepare_record(raw, batch.source, tokenizer, format_name)
            if batch.keys:
                fresh[batch.keys[index]] = packed(prepared)
        yield from _ready(*prepared, batch.keys[index] if batch.keys else b"")
    if fresh and cache is not None:
        cache.put(fresh)


def _result(running: Future[list[bytes]]) -> list[bytes]:
    try:
        return running.result()
    except BrokenProcessPool as error:
        raise PrerequisiteError(
            "trajectories were to be read by several processes.",
            "found: a worker process ended without a word (out of memory?)",
            "give fewer workers, or none",
        ) from error


def _ready(outcome: Outcome, tokens: Sequence[Tokens], key: bytes) -> Iterator[Ready | Rejected]:
    if outcome.rejected is not None:
        yield outcome.rejected
    for index, trajectory in enumerate(outcome.trajectories):
        yield Ready(trajectory, tokens[index] if tokens else None, key, index)


# --- in a worker --------------------------------------------------------------------------------

_STATE: dict[str, Any] = {}


def _start(load_tokenizer: LoadTokenizer | None, format_name: str) -> None:
    _STATE["tokenizer"] = load_tokenizer() if load_tokenizer is not None else None
    _STATE["format"] = format_name


def _work(source: str, raws: list[Raw]) -> list[bytes]:
    return [
        packed(prepare_record(raw, source, _STATE["tokenizer"], _STATE["format"])) for raw in raws
    ]
