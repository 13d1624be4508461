"""A teacher's answers in a folder: `teacher.json`, `answers.sqlite` and `tokenizer/`.

`teacher.json` names the teacher and the settings. Answers that were asked for together are written
in one transaction, so an interrupted folder holds whole answers only. That is why it is no
`rlvr.KeyValueCache`, which writes one key at a time and goes on without its file.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np
from attrs import asdict, frozen
from numpy.typing import ArrayLike, NDArray

from rlvr import BackendError, ConfigError, TopK, UnknownNameError

_LOWEST = float(np.finfo(np.float16).min)


def row_type(k: int) -> np.dtype:
    """
    The fields of a row.

    `place`, position in the sequence; `ids`, likeliest first, -1: none; `logprobs` in nats, -inf
    where there is none; `actual`, nats, of the token that stands there; `entropy`, nats, where what
    lies beyond the k counts as one token.
    """
    sized = [("ids", "<i4", (k,)), ("logprobs", "<f2", (k,))]
    return np.dtype([("place", "<i4"), *sized, ("actual", "<f4"), ("entropy", "<f2")])


def rows_of(answer: TopK, places: NDArray[np.int64], k: int) -> np.ndarray:
    """
    Rows (n,) to keep of a teacher's answer.

    Args:
        answer: (n, k or more).
        places: (n,) their positions.
        k: Tokens to keep, the likeliest.
    """
    logprobs = np.where(answer.ids >= 0, answer.logprobs, -np.inf)
    order = np.argsort(-logprobs, axis=-1, kind="stable")[:, :k]
    logprobs = np.take_along_axis(logprobs, order, -1).astype(np.float64)
    over = np.log(np.exp(logprobs).sum(-1, keepdims=True))  # a teacher may round its sum above 1
    logprobs = logprobs - np.maximum(over, 0.0)
    kept = rounded_down(logprobs)
    rows = np.empty(len(places), row_type(order.shape[1]))
    rows["place"], rows["actual"] = places, answer.actual
    rows["ids"] = np.where(np.isneginf(kept), -1, np.take_along_axis(answer.ids, order, -1))
    rows["logprobs"], rows["entropy"] = kept, entropy_of(logprobs)
    return rows


def answer_of(rows: np.ndarray, start: int, length: int, k: int, *, is_whole: bool) -> TopK:
    """
    Answers from `start` to `length` - 1; positions that were not asked for hold NaN.

    A whole distribution is brought back to a sum of 1.
    """
    count = length - start
    ids = np.full((count, k), -1, np.int32)
    logprobs = np.full((count, k), -np.inf, np.float32)
    actual = np.full(count, np.nan, np.float32)
    rows = rows[(rows["place"] >= start) & (rows["place"] < length)]
    at = rows["place"] - start
    kept = rows["logprobs"][:, :k].astype(np.float32)
    if is_whole:
        kept = kept - np.log(np.exp(kept, dtype=np.float64).sum(-1, keepdims=True))
    ids[at], logprobs[at], actual[at] = rows["ids"][:, :k], kept, rows["actual"]
    return TopK(ids=ids, logprobs=logprobs, actual=actual, is_whole=is_whole)


def rounded_down(values: NDArray[np.float64]) -> NDArray[np.float16]:
    """The largest float16 that is not above each value; -inf stays."""
    kept = np.maximum(values, _LOWEST).astype(np.float16)
    with np.errstate(over="ignore"):  # below the lowest float16 is -inf
        kept = np.where(kept > values, np.nextafter(kept, np.float16(-np.inf)), kept)
    return np.where(np.isneginf(values), np.float16(-np.inf), kept).astype(np.float16)


def entropy_of(logprobs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Entropy (n,) of rows (n, k) with the rest as one token, nats: at most the true one."""
    p = np.exp(logprobs)
    rest = np.maximum(1.0 - p.sum(-1), 0.0)
    inside = -np.where(p > 0.0, p * np.where(p > 0.0, logprobs, 0.0), 0.0).sum(-1)
    return inside - rest * np.log(np.where(rest > 0.0, rest, 1.0))


VERSION = 2
HEAD, ANSWERS, TOKENIZER = "teacher.json", "answers.sqlite", "tokenizer"
_PART = 256
"""Positions of a sequence that are kept together: SQLite's values end at 1 GB."""
_TABLES = """
create table if not exists answers (key, part, rows, entropy, data, primary key (key, part));
create table if not exists problems (key, digest, primary key (key, digest)) without rowid;
"""


@frozen(kw_only=True)
class Head:
    """
    The settings that all answers of a folder share.

    Attributes:
        teacher: Model spec of the teacher that was asked.
        tokenizer: Fingerprint of its tokenizer, which is the student's.
        k: Tokens a position.
        temperature: That its logits were divided by.
        context_length: Tokens that it reads.
        vocab_size: Of the tokenizer; k is the whole distribution where it is as large.
    """

    teacher: str
    tokenizer: str
    k: int
    temperature: float
    context_length: int
    vocab_size: int
    version: int = VERSION


def key_of(tokenizer: str, ids: ArrayLike, temperature: float) -> str:
    """The key of a sequence: sha256 over tokenizer, temperature and token ids."""
    digest = hashlib.sha256(f"{tokenizer} {temperature!r} ".encode())
    digest.update(np.ascontiguousarray(ids, dtype="<i4").tobytes())
    return digest.hexdigest()


def asked_of(ids: NDArray[np.int32], mask: NDArray[np.bool_]) -> NDArray[np.int32]:
    """The part of a sequence that a teacher reads: up to its last supervised token."""
    places = np.flatnonzero(mask)
    return ids[: int(places[-1]) + 1] if len(places) else ids


def read_head(folder: Path) -> Head:
    """
    Whose answers a folder holds.

    Raises:
        UnknownNameError: There is no such folder, or it holds no answers.
        ConfigError: They were written by another version, or the file is broken.
    """
    asked = f"a teacher's answers were to be read from {folder}."
    try:
        found = json.loads((folder / HEAD).read_text("utf-8"))
        if found.get("version") != VERSION:
            raise ValueError(f"version {found.get('version')}, this one reads {VERSION}")
        return Head(**found)
    except FileNotFoundError:
        raise UnknownNameError(
            asked,
            f"found: no {HEAD} there",
            "make them: rlvr sad cache-teacher --teacher SPEC --model STUDENT "
            f"--dataset FILES --out {folder}",
        ) from None
    except (ValueError, TypeError, AttributeError, OSError) as error:
        found = f"found: {HEAD} cannot be used: {error}"
        raise ConfigError(asked, found, "make them anew, in another folder") from error


def write_head(folder: Path, head: Head) -> None:
    """
    Begin a folder, or go on with one of the same making.

    Raises:
        ConfigError: It holds answers of another making.
    """
    if not (folder / HEAD).exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{HEAD}.part"
        part.write_text(json.dumps(asdict(head), indent=2), "utf-8")
        part.replace(folder / HEAD)
        return
    before = asdict(read_head(folder))
    differing = [name for name, value in asdict(head).items() if before[name] != value]
    if differing:
        raise ConfigError(
            f"a teacher's answers were to be kept in {folder}.",
            f"found: others, which differ in {', '.join(differing)}",
            "choose another --out, or give the same teacher, model, --k and --temperature",
        )


class Answers:
    """
    The file of answers in a folder, which is made where there is none.

    Rows are structured arrays (`rows.row_type`); `digest` is that of a problem
    (`Problem.digest`), "" for none.

    Raises:
        BackendError: From every method: the file cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / ANSWERS
        with self._usable():
            self._store = sqlite3.connect(self._path, timeout=60)
            self._store.executescript(_TABLES)

    def keys(self) -> set[str]:
        with self._usable():
            return {key for (key,) in self._store.execute("select distinct key from answers")}

    def add(self, rows: Mapping[str, np.ndarray], problems: Iterable[tuple[str, str]]) -> None:
        """Keep rows by key, and which problems (key, digest) a sequence belongs to; all or none."""
        parts = [
            (key, at, len(some), float(some["entropy"].astype(float).sum()), some.tobytes())
            for key, whole in rows.items()
            for at in range(0, len(whole), _PART)
            for some in [whole[at : at + _PART]]
        ]
        with self._usable(), self._store:
            self._store.executemany("delete from answers where key = ?", [(key,) for key in rows])
            self._store.executemany("insert into answers values (?,?,?,?,?)", parts)
            self._store.executemany("insert or ignore into problems values (?, ?)", problems)

    def get(self, key: str, rows: np.dtype) -> np.ndarray | None:
        """The rows of a sequence, as this type; None where it is not there."""
        with self._usable():
            query = "select data from answers where key = ? order by part"
            parts = [data for (data,) in self._store.execute(query, [key])]
            return np.frombuffer(b"".join(parts), rows) if parts else None

    def entropies(self) -> dict[str, float]:
        """Mean over all rows of a problem, nats, by digest."""
        with self._usable():
            query = """
                select digest, sum(entropy) / sum(rows) from problems join answers using (key)
                where digest != '' group by digest"""
            return dict(self._store.execute(query))

    def close(self) -> None:
        self._store.close()

    def __del__(self) -> None:  # Python 3.13 warns of a file that is let go while it is open
        with suppress(AttributeError, sqlite3.Error):  # never opened; of another thread
            self._store.close()

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError) as error:  # ValueError: rows of another length
            raise BackendError(
                f"a teacher's answers in {self._path} were to be used.",
                f"found: a file that cannot be used: {error}",
                "make them anew, in another folder: rlvr sad cache-teacher",
            ) from error


def entropies(folder: Path) -> Mapping[str, float]:
    """
    Mean entropy of the teacher by `Problem.digest`, over all rows of a problem, nats.

    Raises:
        UnknownNameError: The folder holds no answers.
        BackendError: They cannot be read.
    """
    read_head(folder)
    with closing(Answers(folder)) as answers:
        return answers.entropies()
