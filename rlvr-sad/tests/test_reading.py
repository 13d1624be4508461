"""Files: what they hold is found out, and what is broken is told with its place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

from rlvr import ConfigError, UnknownNameError
from rlvr_sad.sessions.prepare import files_of, trajectories_of

CHAT = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
GOOD = {"messages": CHAT}
LINE = json.dumps(GOOD) + "\n"


@pytest.mark.parametrize(
    ("name", "content", "ids"),
    [
        ("a.jsonl", LINE * 3, ["0", "1", "2"]),
        ("a.jsonl", "\n" + LINE + "\n\n" + LINE, ["0", "1"]),
        ("lines.json", LINE * 2, ["0", "1"]),
        ("a.json", [GOOD, GOOD], ["0", "1"]),
        ("a.json", json.dumps([GOOD, GOOD], indent=2), ["0", "1"]),
        ("a.json", CHAT, ["0"]),
        ("a.json", GOOD, ["0"]),
        ("a.json", json.dumps(GOOD, indent=2), ["0"]),
        ("a.json", {"k1": GOOD, "k2": GOOD}, ["k1", "k2"]),
        ("a.json", {"p": "> think: x\nOK.\n> go\n", "q": "> think: y\n"}, ["p", "q"]),
        ("a.yaml", "history:\n- role: user\n  content: q\n  agent: main\n", []),
        ("a.yaml", "- role: user\n  content: q\n- role: assistant\n  content: a\n", ["0"]),
        ("a.txt", "Thought 1: a\nAction 1: b\n\n=====\nThought 1: c\nAction 1: d\n", ["0", "1"]),
        ("a.txt", "<|im_start|>tool\nTitle\n=====\n<|im_end|>", ["0"]),
        ("a.txt", "[note] Thought: x\nThought: y\nAction: z\n", ["0"]),
        ("a.jsonl", b"\xef\xbb\xbf" + LINE.encode(), ["0"]),
        ("a.jsonl", json.dumps({"id": "r-7", "text": "<think>x</think>"}), ["r-7"]),
    ],
)
def test_what_a_file_holds(write: Any, read: Any, name: str, content: Any, ids: list[str]) -> None:
    """Lines, arrays, objects of records, one record, YAML, texts with separators."""
    found, refused = read(write(name, content))

    assert [t.id for t in found] == ids
    assert not refused or not ids


def test_a_reflexion_log(write: Any, read: Any) -> None:
    """Headings and summaries are no records; each question is one."""
    log = (
        "\n########################################\nBEGIN TRIAL 1\nTrial summary: Correct: 1\n"
        "#######################################\n------------- BEGIN CORRECT AGENTS -----------\n"
        "\nQuestion: a\nThought 1: b\nAction 1: Finish[c]\nObservation 1: ok\nCorrect answer: c\n\n"
        "Question: d\nThought 1: e\nAction 1: Finish[f]\nObservation 1: ok\nCorrect answer: f\n\n"
        "------------- BEGIN INCORRECT AGENTS -----------\n\nQuestion: g\nCorrect answer: h\n"
    )
    found, refused = read(write("log.txt", log))

    assert not refused
    assert [t.id for t in found] == ["0#1", "0#2", "1"]
    assert [t.is_supervised for t in found] == [True, True, False]
    assert "BEGIN" not in "".join(t.text for t in found)


def test_a_broken_line_loses_no_other(write: Any, read: Any) -> None:
    """Each refusal has file, line and reason; the places of the others do not change."""
    lines = [LINE.encode(), b"{broken\n", b'{"text": "\xff"}\n', b'{"no": 1}\n', LINE.encode()]
    path = write("a.jsonl", b"".join(lines))
    found, refused = read(path)

    assert [(t.id, t.line) for t in found] == [("0", 1), ("4", 5)]
    assert [(r.line, r.id) for r in refused] == [(2, "1"), (3, "2"), (4, "3")]
    assert "it is no JSON" in refused[0].reason
    assert "byte 0xff at offset 10" in refused[1].reason
    assert "no format knows an object of no" in refused[2].reason
    assert str(refused[0]).startswith(f"{path}:2: record 1: ")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", b"", "the file is empty"),
        ("a.txt", b" \n\n", "the file is empty"),
        ("a.json", "[]", None),
        ("a.txt", "x".encode("utf-16"), "UTF-16"),
        ("a.txt", b"Thought: \xe9\nAction: x\n", "not UTF-8: byte 0xe9 at offset 9"),
        ("a.json", b'{"text": "\xe9"}', "not UTF-8"),
        ("a.json", b'[{"text": "\xe9"}]', "not UTF-8"),
        ("a.json", "{broken", "it is no JSON"),
        ("a.json", "[{broken", "it is no JSON"),
        ("a.yaml", "a: [b", "it is no YAML"),
        ("a.yaml", b"a: \xe9", "not UTF-8"),
        ("a.txt", "Just some prose.\n", "nothing in the text says who wrote what"),
        ("a.json", '"a scalar"', "nothing in the text says who wrote what"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(
    write: Any, read: Any, name: str, content: Any, said: str | None
) -> None:
    """Every such file: one refusal with a reason, no exception."""
    found, refused = read(write(name, content))

    assert not found
    assert [said in r.reason for r in refused] == ([True] if said else [])


def test_an_array_that_breaks_off_keeps_what_came_before(write: Any, read: Any) -> None:
    """Elements before the break are read; the break is told with its line."""
    whole = json.dumps([GOOD] * 5, indent=1)
    found, refused = read(write("a.json", whole[:-20]))

    assert len(found) == 4
    (one,) = refused
    assert one.line > 1
    assert "what comes after cannot be read" in one.reason


def test_a_record_beyond_the_bound_is_passed_over(write: Any) -> None:
    """In lines and in texts; the records beside it are read."""
    long = json.dumps({"messages": [CHAT[0], {"role": "assistant", "content": "x" * 5000}]}) + "\n"
    path = write("a.jsonl", LINE + long + LINE)
    found = list(trajectories_of([path], limit=1000))

    assert [getattr(t, "reason", None) is None for t in found] == [True, False, True]
    assert [t.line for t in found] == [1, 2, 3]
    text = write("a.txt", "Thought: x\nAction: y\n\n=====\n" + "z" * 5000 + "\n")
    assert [type(t).__name__ for t in trajectories_of([text], limit=1000)] == [
        "AgentTrajectory",
        "Rejected",
    ]


_PEAK = """
import resource, sys
from pathlib import Path
from rlvr_sad.sessions.prepare import trajectories_of
list(trajectories_of([Path(sys.argv[2])]))  # what is needed for anything
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kinds = {}
for found in trajectories_of([Path(sys.argv[1])]):
    kinds[type(found).__name__] = kinds.get(type(found).__name__, 0) + 1
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, kinds)
"""


def peak_mib(path: Path, small: Path) -> tuple[int, str]:
    """MiB that reading a file takes at most, in a process of its own, and what was found."""
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, str(path), str(small)],
        capture_output=True,
        text=True,
        check=True,
        timeout=250,
    )
    mib, _, kinds = done.stdout.strip().partition(" ")
    return int(mib), kinds


@pytest.mark.slow
def test_a_single_line_of_200_mb_takes_bounded_memory(tmp_path: Path, write: Any) -> None:
    """It is refused with its size; the most that is held is the bound of one record."""
    path = tmp_path / "huge.jsonl"
    with path.open("wb") as file:
        file.write(b'{"text": "')
        for _ in range(200):
            file.write(b"x" * 2**20)
        file.write(b'"}\n' + LINE.encode())

    mib, kinds = peak_mib(path, write("small.jsonl", LINE))

    assert kinds == "{'Rejected': 1, 'AgentTrajectory': 1}"
    assert mib < 160


@pytest.mark.one_of(2)
@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_a_thousand_records_are_not_held(tmp_path: Path, write: Any, suffix: str) -> None:
    """30 MB of records in lines or in one array take a small part of that."""
    words = "all work and no play " * 100
    path = tmp_path / f"many.{suffix}"
    separator, around = ("\n", ("", "\n")) if suffix == "jsonl" else (",\n", ("[", "]"))
    with path.open("w") as file:
        file.write(around[0])
        for n in range(1_000):
            chat = [CHAT[0], {"role": "assistant", "content": f"{n} {words * 15}"}]
            file.write((separator if n else "") + json.dumps({"messages": chat}))
        file.write(around[1])
    assert path.stat().st_size > 30_000_000

    mib, kinds = peak_mib(path, write("small.jsonl", LINE))

    assert kinds == "{'AgentTrajectory': 1000}"
    assert mib < 20


def test_files_and_folders(tmp_path: Path, write: Any) -> None:
    """A folder gives the files that may hold trajectories; what is not there is an error."""
    write("b.jsonl", LINE)
    write("a.txt", "x")
    write("c.png", b"x")
    (tmp_path / "empty").mkdir()

    with structlog.testing.capture_logs() as said:
        assert [p.name for p in files_of([tmp_path])] == ["a.txt", "b.jsonl"]
    assert [(line["files"], line["such_as"]) for line in said] == [(1, ["c.png"])]
    with pytest.raises(UnknownNameError, match="no such file"):
        files_of([tmp_path / "nothing"])
    with pytest.raises(UnknownNameError, match="holds no file"):
        files_of([tmp_path / "empty"])
    with pytest.raises(ConfigError, match="was to be read"):
        list(trajectories_of([tmp_path / "nothing"]))
