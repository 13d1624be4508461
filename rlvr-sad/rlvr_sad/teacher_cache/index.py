"""The index of a folder of a teacher's answers: which sequence stands where, a line each.

A folder holds `teacher.json` (whose answers, of what), `index.jsonl`, `shards/` and `tokenizer/`.
A line of the index is written when its rows are safely in a shard, so a folder whose making was
interrupted is whole as far as it goes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from attrs import asdict, evolve, frozen
from numpy.typing import ArrayLike, NDArray

from rlvr import ConfigError, UnknownNameError

VERSION = 1
HEAD, INDEX, SHARDS, TOKENIZER = "teacher.json", "index.jsonl", "shards", "tokenizer"


@frozen(kw_only=True)
class Head:
    """
    What all answers of a folder have in common.

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


@frozen(kw_only=True)
class Entry:
    """
    Where the answer to one sequence is.

    Attributes:
        key: `key_of` the sequence.
        shard: File name in `shards/`.
        row: First row there.
        rows: How many: the positions that were asked for.
        entropy: Mean over the rows, nats; what lies beyond the k likeliest counts as one token.
        digest: Of the problem the sequence belongs to (`Problem.digest`), "" for none.
    """

    key: str
    shard: str
    row: int
    rows: int
    entropy: float
    digest: str = ""


def key_of(tokenizer: str, ids: ArrayLike, temperature: float) -> str:
    """What a sequence is found by: sha256 over tokenizer, temperature and token ids."""
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
    try:
        found = json.loads((folder / HEAD).read_text("utf-8"))
        if found.get("version") != VERSION:
            raise ValueError(f"version {found.get('version')}, this one reads {VERSION}")
        return Head(**found)
    except FileNotFoundError:
        raise UnknownNameError(
            f"a teacher's answers were to be read from {folder}.",
            f"found: no {HEAD} there",
            "make them: rlvr sad cache-teacher --teacher SPEC --model STUDENT "
            f"--dataset FILES --out {folder}",
        ) from None
    except (ValueError, TypeError, AttributeError, OSError) as error:
        raise ConfigError(
            f"a teacher's answers were to be read from {folder}.",
            f"found: {HEAD} cannot be used: {error}",
            "make them anew, in another folder",
        ) from error


def write_head(folder: Path, head: Head) -> None:
    """
    Begin a folder, or go on with one of the same making.

    Raises:
        ConfigError: It holds answers of another making.
    """
    if (folder / HEAD).exists():
        before = read_head(folder)
        if before != head:
            differing = [k for k, v in asdict(head).items() if asdict(before)[k] != v]
            raise ConfigError(
                f"a teacher's answers were to be kept in {folder}.",
                f"found: others, which differ in {', '.join(differing)}",
                "choose another --out, or give the same teacher, model, --k and --temperature",
            )
        return
    (folder / SHARDS).mkdir(parents=True, exist_ok=True)
    _replace(folder / HEAD, json.dumps(asdict(head), indent=2))


def read_entries(folder: Path) -> Iterator[Entry]:
    """The index; a last line that broke off is passed over."""
    try:
        file = (folder / INDEX).open(encoding="utf-8")
    except FileNotFoundError:
        return
    with file:
        for line in file:
            try:
                yield Entry(**json.loads(line))
            except (ValueError, TypeError):
                continue


def add_entries(folder: Path, entries: Iterable[Entry]) -> None:
    """Append, durably: their rows are in a shard."""
    with (folder / INDEX).open("a+b") as file:
        if file.tell() and not _ends_a_line(file):
            file.write(b"\n")
        for entry in entries:
            file.write(json.dumps(asdict(entry)).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def name_all(folder: Path, wanted: Iterable[tuple[str, str]]) -> None:
    """
    See that each problem has a line for each of its sequences, also where another has the same.

    Args:
        folder: The answers.
        wanted: Key of a sequence and digest of a problem it belongs to.
    """
    entries = list(read_entries(folder))
    there = {(entry.key, entry.digest) for entry in entries}
    by_key = {entry.key: entry for entry in entries}
    more = [evolve(by_key[k], digest=d) for k, d in wanted if (k, d) not in there and k in by_key]
    if more:
        add_entries(folder, more)


def entropies(folder: Path) -> Mapping[str, float]:
    """
    Mean entropy of the teacher by `Problem.digest`, over all rows of a problem, nats.

    Raises:
        UnknownNameError: The folder holds no answers.
    """
    read_head(folder)
    sums: dict[str, tuple[float, int]] = {}
    for entry in read_entries(folder):
        total, count = sums.get(entry.digest, (0.0, 0))
        sums[entry.digest] = (total + entry.entropy * entry.rows, count + entry.rows)
    return {name: total / count for name, (total, count) in sums.items() if name and count}


def _ends_a_line(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")


def _replace(path: Path, text: str) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, "utf-8")
    part.replace(path)
