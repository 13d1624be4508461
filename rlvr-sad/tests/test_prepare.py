"""Many records: in order, by several workers, each content only once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byte_tokenizer import ByteTokenizer, Dying

from rlvr import BuildContext, ConfigError, PrerequisiteError
from rlvr_sad.config import SadConfig
from rlvr_sad.sessions import cache as cache_module
from rlvr_sad.sessions.cache import TrajectoryCache, limit_of
from rlvr_sad.sessions.prepare import Ready, prepare
from rlvr_sad.sessions.record import Rejected
from rlvr_sad.task import SadTask


def corpus(count: int, start: int = 0) -> str:
    """Lines of chats with a tool, some with a picture; every tenth line is broken."""
    lines = []
    for n in range(start, start + count):
        call = {"function": {"name": "f", "arguments": json.dumps({"n": n})}}
        user = [{"type": "text", "text": f"q{n} é"}]
        user += [{"type": "image_url", "image_url": {"url": f"{n}.png"}}] if n % 3 else []
        messages = [
            {"role": "user", "content": user},
            {"role": "assistant", "content": f"why {n}", "tool_calls": [call]},
            {"role": "tool", "content": f"got {n}"},
        ]
        lines.append(json.dumps({"messages": messages, "reward": n}) if n % 10 else "{broken")
    return "\n".join(lines) + "\n"


def told(found: Ready | Rejected) -> Any:
    """All that is known of a result, comparable."""
    if isinstance(found, Rejected):
        return found
    assert found.tokens is not None
    return (
        found.trajectory,
        found.tokens.ids.tolist(),
        found.tokens.types.tolist(),
        found.tokens.mask.tolist(),
    )


def everything(path: Path, **options: Any) -> list[Any]:
    """All results of a file."""
    return [told(found) for found in prepare([path], load_tokenizer=ByteTokenizer, **options)]


@pytest.mark.slow
def test_workers_give_what_one_process_gives(write: Any, tmp_path: Path) -> None:
    """The same trajectories, tokens and refusals, in the same order; with a cache too."""
    path = write("a.jsonl", corpus(100))
    alone = everything(path)

    assert len(alone) == 100
    assert sum(isinstance(one, Rejected) for one in alone) == 10
    assert everything(path, workers=2) == alone
    cache = TrajectoryCache(tmp_path / "c.sqlite")
    assert everything(path, workers=1, cache=cache) == alone
    assert (cache.hits, cache.misses) == (0, 100)
    assert everything(path, cache=cache) == alone
    assert cache.hits == 100
    cache.close()


@pytest.mark.slow
def test_a_worker_that_dies_is_told(write: Any) -> None:
    """The error says what happened and what to do, and nothing hangs."""
    path = write("a.jsonl", corpus(3, start=1))

    with pytest.raises(PrerequisiteError, match="worker process ended"):
        list(prepare([path], load_tokenizer=Dying, workers=1))


def test_a_record_that_did_not_change_is_not_read_again(write: Any, tmp_path: Path) -> None:
    """Not after the file was renamed, nor after lines were put before it: then places change."""
    first = write("a.jsonl", corpus(5, start=1))
    second = write("b.jsonl", corpus(2, start=7) + corpus(5, start=1))
    with_cache = {"cache": TrajectoryCache(tmp_path / "c.sqlite")}
    before = everything(first, **with_cache)
    calls = ByteTokenizer.calls
    after = everything(second, **with_cache)

    assert ByteTokenizer.calls == calls + 2 + 1  # two new records, and the tokenizer's fingerprint
    assert [t[1:] for t in after[2:]] == [t[1:] for t in before]
    assert [t[0].text for t in after[2:]] == [t[0].text for t in before]
    assert [(t[0].id, t[0].line, t[0].source) for t in after[2:]] == [
        (str(n), n + 1, str(second)) for n in range(2, 7)
    ]
    assert after == everything(second)


def test_another_tokenizer_is_another_result(write: Any, tmp_path: Path) -> None:
    """Nothing of one tokenizer's tokens is given to another's."""

    class Doubled(ByteTokenizer):
        vocab_size = 512

        def encode(self, text: str) -> list[int]:
            return [256 + byte for byte in text.encode("utf-8")]

        def bytes_of(self, token: int) -> bytes:
            return bytes([token % 256])

    path = write("a.jsonl", corpus(2, start=1))
    cache = TrajectoryCache(tmp_path / "c.sqlite")
    list(prepare([path], load_tokenizer=ByteTokenizer, cache=cache))
    (found, _) = list(prepare([path], load_tokenizer=Doubled, cache=cache))

    assert isinstance(found, Ready)
    assert found.tokens is not None
    assert np.all(found.tokens.ids >= 256)


def test_without_a_tokenizer_only_spans(write: Any) -> None:
    """`tokens` is None."""
    found = list(prepare([write("a.jsonl", corpus(2, start=1))]))

    assert [one.tokens for one in found if isinstance(one, Ready)] == [None, None]


def test_a_cache_that_is_no_database_is_named(tmp_path: Path) -> None:
    """The file and what to do about it."""
    path = tmp_path / "c.sqlite"
    path.write_bytes(b"this is no database, and long enough to be looked at" * 100)

    with pytest.raises(ConfigError, match="remove the file"):
        TrajectoryCache(path)


def test_a_cache_that_has_no_place_is_said(tmp_path: Path) -> None:
    """A folder in the file's place, and a file in the folder's: an error of the configuration."""
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "file" / "c.sqlite"):
        with pytest.raises(ConfigError, match="choose another folder with RLVR_CACHE_DIR"):
            TrajectoryCache(path)


def keys_of(cache: TrajectoryCache, names: str) -> str:
    """Which of the results are there."""
    return "".join(n for n in names if cache.get([n.encode()]))


def test_a_cache_keeps_to_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    What was not used for longest goes, when the file is opened or closed, and its room too.

    Ten results of 100 kB under a limit of 650 kB: at most 90 % of that is left.
    """
    hour = [0]
    monkeypatch.setattr(cache_module, "now", lambda: hour[0])
    path, names = tmp_path / "c.sqlite", "abcdefghij"
    cache = TrajectoryCache(path, limit=650_000)
    for hour[0], name in enumerate(names):
        cache.put({name.encode(): bytes(100_000)})
    hour[0] = 99
    assert keys_of(cache, "b") == "b"  # nothing is removed while it is in use
    cache.close()

    assert path.stat().st_size < 650_000
    again = TrajectoryCache(path, limit=0)
    assert keys_of(again, names) == "bghij"
    again.close()
    TrajectoryCache(path, limit=250_000).close()
    again = TrajectoryCache(path, limit=0)
    assert len(keys_of(again, names)) == 2
    again.close()
    free = TrajectoryCache(path, limit=0)
    free.put({n.encode(): bytes(100_000) for n in names})
    free.close()
    assert path.stat().st_size > 1_000_000


def test_a_run_goes_on_when_what_it_read_was_removed(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is read again, whatever another process left of the cache."""
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path / "cache"))
    task = SadTask(SadConfig(), BuildContext(dataset=write("a.jsonl", corpus(9, start=1))))
    first, *_, last = task.problems("all")
    before = task.trajectory(first)
    TrajectoryCache(limit=1).close()

    assert task.trajectory(last).labels["reward"] == 9
    assert task.trajectory(first) == before


@pytest.mark.parametrize(("text", "bytes_"), [("", 10_000_000_000), ("0.5", 500_000_000), ("0", 0)])
def test_the_limit_is_a_number_of_gigabytes(text: str, bytes_: int) -> None:
    """Unset is ten; what is no such number is refused, with what to do."""
    assert limit_of({"RLVR_SAD_CACHE_GB": text}) == bytes_
    for wrong in ("much", "-1", "nan", "inf"):
        with pytest.raises(ConfigError, match="no number of gigabytes"):
            limit_of({"RLVR_SAD_CACHE_GB": wrong})
