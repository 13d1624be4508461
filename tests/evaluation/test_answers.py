"""Reading answers: what a line may be, and what is said of one that cannot be read."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from rlvr import Message, Problem, UnknownNameError
from rlvr.evaluation.answers_file import Answer, read_answers

PROBLEMS = {"p1": Problem(id="p1", prompt=[Message(role="user", content="?")])}
GOOD = json.dumps({"id": "p1", "completion": "x"})


def read(path: Path) -> list[Answer]:
    return list(read_answers(str(path), PROBLEMS, {}))


@pytest.mark.parametrize(
    "line",
    ["{", "[" * 100_000, '{"id": ' + "9" * 5000 + "}", "NaN", "null", '{"id": "p1", "files": []}'],
    ids=["cut", "deep", "digits", "nan", "null", "types"],
)
def test_a_line_that_cannot_be_read_is_named_and_the_next_is_read(
    tmp_path: Path, line: str
) -> None:
    """Whatever json makes of it, it is one error with the line's number."""
    (tmp_path / "a.jsonl").write_text(f"{line}\n{GOOD}\n")

    bad, good = read(tmp_path / "a.jsonl")

    assert bad.error.startswith("line 1: ")
    assert bad.trajectory is None
    assert good.trajectory is not None


def test_byte_order_marks_and_windows_lines_are_no_mistake(tmp_path: Path) -> None:
    """Editors on Windows write both."""
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + f"{GOOD}\r\n{GOOD}\r\n".encode())

    assert [answer.error for answer in read(tmp_path / "a.jsonl")] == ["", ""]


def test_an_id_may_be_a_number(tmp_path: Path) -> None:
    """Data sets count their rows: 17 means "17"; true and null are no ids."""
    lines = ['{"id": 17, "completion": "x"}', '{"id": true, "completion": "x"}', '{"id": null}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    problems = {"17": Problem(id="17", prompt=PROBLEMS["p1"].prompt)}

    good, *bad = read_answers(str(tmp_path / "a.jsonl"), problems, {})

    assert (good.id, good.error) == ("17", "")
    assert good.trajectory is not None
    assert good.trajectory.problem_id == "17"
    assert all('no "id"' in answer.error for answer in bad)


def test_standard_input_need_not_be_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are no UTF-8 spoil their own line at most."""
    raw = b'{"id": "\xff"}\n' + GOOD.encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8"))

    bad, good = read_answers("-", PROBLEMS, {})

    assert "line 1: byte 9 of it is not UTF-8" in bad.error
    assert good.error == ""


def test_a_folder_is_named_as_one(tmp_path: Path) -> None:
    """Not "no such file": there is something, of the wrong kind."""
    with pytest.raises(UnknownNameError, match="a folder"):
        read(tmp_path)


def test_a_pipe_is_named_as_none(tmp_path: Path) -> None:
    """Answers may come through one as standard input, which has its own name."""
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(UnknownNameError, match="no regular file; standard input is named -"):
        read(tmp_path / "pipe")
