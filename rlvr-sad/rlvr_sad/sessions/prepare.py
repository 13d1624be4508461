"""Reads and tokenises the records of files: in order, in parallel, each content only once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import structlog
from attrs import define, frozen

from rlvr import PrerequisiteError, Tokenizer, UnknownNameError, fingerprint
from rlvr_sad.sessions.cache import TrajectoryCache, key_of
from rlvr_sad.sessions.files import records_of
from rlvr_sad.sessions.read import Prepared, packed, read_record, unpacked
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
    """
    Some records of one file.

    Attributes:
        source: The file.
        raws: The records.
        keys: Of each in the cache; b"" where there is none.
        done: Results by position, as bytes: those of the cache, later all.
        running: The others, from a worker.
    """

    source: str
    raws: list[Raw | Rejected]
    keys: list[bytes]
    done: dict[int, bytes]
    running: Future[list[bytes]] | None = None

    def todo(self) -> dict[int, Raw]:
        numbered = enumerate(self.raws)
        return {i: r for i, r in numbered if isinstance(r, Raw) and i not in self.done}


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
    pool = None
    if workers:
        context, own = get_context("spawn"), (load_tokenizer, format_name)
        pool = ProcessPoolExecutor(workers, context, initializer=_start, initargs=own)
    waiting: deque[_Batch] = deque()
    with pool or nullcontext():
        for source, raws in _batches(paths, limit):
            keys = [b""] * len(raws)
            if cache is not None:
                keys = [
                    key_of(raw, format_name, name) if isinstance(raw, Raw) else b"" for raw in raws
                ]
            kept = cache.get([key for key in keys if key]) if cache is not None else {}
            batch = _Batch(
                source, raws, keys, {i: kept[k] for i, k in enumerate(keys) if k in kept}
            )
            if pool is not None and (todo := batch.todo()):
                batch.running = pool.submit(_work, source, list(todo.values()))
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


def _batches(paths: Sequence[Path], limit: int) -> Iterator[tuple[str, list[Raw | Rejected]]]:
    for path in paths:
        raws: list[Raw | Rejected] = []
        size = 0
        for raw in records_of(path, limit=limit):
            raws.append(raw)
            size += len(raw.data) if isinstance(raw, Raw) else 0
            if len(raws) >= _RECORDS or size >= _BYTES:
                yield str(path), raws
                raws, size = [], 0
        if raws:
            yield str(path), raws


def _finished(
    batch: _Batch,
    tokenizer: Tokenizer | None,
    cache: TrajectoryCache | None,
    format_name: str,
) -> Iterator[Ready | Rejected]:
    """The results of a batch; new ones are cached once all of them were taken."""
    todo = batch.todo()
    if batch.running is not None:
        batch.done |= zip(todo, _result(batch.running), strict=True)
    for index, raw in enumerate(batch.raws):
        if isinstance(raw, Rejected):
            yield raw
            continue
        if index in batch.done:
            outcome, tokens = unpacked(batch.done[index], raw, batch.source)
        else:
            outcome, tokens = prepare_record(raw, batch.source, tokenizer, format_name)
            if cache is not None:
                batch.done[index] = packed((outcome, tokens))
        if outcome.rejected is not None:
            yield outcome.rejected
        for place, trajectory in enumerate(outcome.trajectories):
            own = tokens[place] if tokens else None
            yield Ready(trajectory, own, batch.keys[index], place)
    if cache is not None and todo:
        cache.put({batch.keys[index]: batch.done[index] for index in todo})


def _result(running: Future[list[bytes]]) -> list[bytes]:
    try:
        return running.result()
    except BrokenProcessPool as error:
        raise PrerequisiteError(
            "trajectories were to be read by several processes.",
            "found: a worker process ended without a word (out of memory?)",
            "give fewer workers, or none",
        ) from error


# --- in a worker --------------------------------------------------------------------------------

_STATE: dict[str, Any] = {}


def _start(load_tokenizer: LoadTokenizer | None, format_name: str) -> None:
    _STATE["tokenizer"] = load_tokenizer() if load_tokenizer is not None else None
    _STATE["format"] = format_name


def _work(source: str, raws: list[Raw]) -> list[bytes]:
    return [
        packed(prepare_record(raw, source, _STATE["tokenizer"], _STATE["format"])) for raw in raws
    ]


log = structlog.get_logger(__name__)

SUFFIXES = frozenset({".json", ".jsonl", ".ndjson", ".traj", ".yaml", ".yml", ".txt", ".log"})


def trajectories_of(
    paths: Sequence[Path], *, format_name: str = "", limit: int = MAX_RECORD
) -> Iterator[AgentTrajectory | Rejected]:
    """
    Trajectories and refusals of several files, in order.

    Raises:
        ConfigError: A file cannot be opened.
    """
    for found in prepare(paths, format_name=format_name, limit=limit):
        yield found if isinstance(found, Rejected) else found.trajectory


def files_of(paths: Sequence[Path]) -> list[Path]:
    """
    Files as given; of a folder those that may hold trajectories, sorted; others are logged.

    Raises:
        UnknownNameError: There is no such file, or a folder holds none.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            files = [p for p in sorted(path.rglob("*")) if p.is_file() and p.name[0] != "."]
            inside = [p for p in files if p.suffix.lower() in SUFFIXES]
            others = [str(p.relative_to(path)) for p in files if p.suffix.lower() not in SUFFIXES]
            if others:
                log.warning(
                    "files_passed_over",
                    folder=str(path),
                    files=len(others),
                    such_as=others[:3],
                    read=", ".join(sorted(SUFFIXES)),
                )
            if not inside:
                raise UnknownNameError(
                    f"trajectories in {path} were asked for.",
                    "it holds no file that could have any",
                    f"files end in {', '.join(sorted(SUFFIXES))}",
                )
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise UnknownNameError(
                f"{path} was to be read.", "there is no such file", "check the path"
            )
    return found
