"""The commands, as a person runs them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rlvr_process import run_rlvr

from rlvr import ConfigError, UnknownNameError
from rlvr_sad.commands.inspect import inspect

CHAT = [
    {"role": "user", "content": "q\x1b[31m"},
    {"role": "assistant", "content": "<think>hm</think>\nyes é"},
]
pytestmark = pytest.mark.integration


def rlvr(*words: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return run_rlvr(*map(str, words), env={**os.environ, "NO_COLOR": "1", **environ})


def test_spans_of_native_and_of_text_records(write: Any) -> None:
    """One line a record: id, text, spans in characters that cover the text; refusals on stderr."""
    lines = [
        json.dumps({"messages": CHAT}),
        "{broken",
        json.dumps({"id": "k", "text": "<think>é</think>"}),
    ]
    done = rlvr("sad", "spans", write("a.jsonl", "\n".join(lines)), "--json")

    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert set(first) == {"id", "text", "spans"}
    assert (first["id"], second["id"]) == ("0", "k")
    for record in (first, second):
        assert record["spans"][0]["start"] == 0
        assert record["spans"][-1]["end"] == len(record["text"])
        ends = [s["end"] for s in record["spans"][:-1]]
        assert ends == [s["start"] for s in record["spans"][1:]]
    assert second["spans"] == [{"start": 0, "end": 16, "type": "reasoning"}]
    said = {s["type"]: first["text"][s["start"] : s["end"]] for s in first["spans"]}
    assert said["reasoning"] == "<think>hm</think>"
    assert said["action"] == "\nyes é"
    assert "a.jsonl:2: record 1: it is no JSON" in done.stderr


def test_refusals_decide_the_exit_code(write: Any) -> None:
    """All refused: exit 2. Some refused: 0, unless --strict. No such file, format: 2."""
    some = write("some.jsonl", json.dumps({"messages": CHAT}) + "\n{broken\n")
    none = write("none.jsonl", "{broken\n")

    assert rlvr("sad", "spans", none, "--json").returncode == 2
    strict = rlvr("sad", "spans", some, "--json", "--strict")
    assert strict.returncode == 2
    assert "1 trajectory, 1 record refused" in strict.stderr
    assert "no such file" in rlvr("sad", "spans", "nothing.jsonl").stderr
    unknown = rlvr("sad", "spans", some, "--format", "chatt")
    assert unknown.returncode == 2
    assert "no format named 'chatt'" in unknown.stderr


def test_logs_are_never_written_over(write: Any, tmp_path: Path) -> None:
    """`--out` that is one of the logs, or in no folder, is refused before anything is lost."""
    path = write("a.jsonl", json.dumps({"messages": CHAT}))
    before = path.read_text()
    for out in (path, tmp_path / "none" / "x.jsonl"):
        done = rlvr("sad", "spans", path, "--json", "--out", out)
        assert done.returncode == 2, done.stderr
        assert f"spans were to be written to {out}" in done.stderr
    assert path.read_text() == before


def test_labelled_files_that_are_odd(write: Any, tmp_path: Path) -> None:
    """No file and bytes that are no UTF-8 are said; U+2028 and a record that is refused are not."""
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(b"\xff\xfe\n")
    nothing = tmp_path / "nothing.jsonl"
    nothing.write_text("\n")
    faults = {tmp_path / "none.jsonl": "No such file", bad: "no UTF-8", nothing: "no record in it"}
    for path, why in faults.items():
        done = rlvr("sad", "gold", path)
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr

    text = "Question: a\u2028b\nThought: c\nAction: d[e]"
    spans = [{"start": 14, "end": 24, "type": "reasoning"}]
    labelled = [{"id": "a", "text": text, "spans": spans}, {"id": "b", "text": "", "spans": []}]
    lines = "\n".join(json.dumps(one, ensure_ascii=False) for one in labelled)
    done = rlvr("sad", "gold", write("g.jsonl", lines), "--json")
    assert done.returncode == 0, done.stderr
    assert "refused" in done.stderr
    assert json.loads(done.stdout)[-1]["right"] == 1.0


def test_inspect_shows_spans_and_a_report(write: Any) -> None:
    """Letters where there is no colour, colours where they are asked for, no control characters."""
    path = write("a.jsonl", json.dumps({"messages": CHAT, "reward": 1}) + "\n{broken\n")
    plain = rlvr("sad", "inspect", path)
    coloured = rlvr("sad", "inspect", path, "--color", "always")

    assert plain.returncode == 0, plain.stderr
    assert "R <think>hm</think>" in plain.stdout
    assert "A yes é" in plain.stdout
    assert "\x1b" not in plain.stdout
    assert "\x1b[36m<think>hm</think>\x1b[0m" in coloured.stdout
    assert "\x1b[31m" not in coloured.stdout  # what the trajectory itself holds
    assert "1 trajectory, 1 record refused" in plain.stdout
    assert "refused      line 2, record 1: it is no JSON" in plain.stdout
    missing = rlvr("sad", "inspect", path, "--record", "9")
    assert missing.returncode == 2
    assert "there are 0" in missing.stderr


def test_inspect_finds_a_record_by_its_place_and_by_its_own_id(
    write: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that have the id are shown; one that nobody has names those that look like it."""
    records = [{"messages": CHAT, "id": f"conv-{n // 2}"} for n in range(30)]
    path = str(write("a.jsonl", "\n".join(map(json.dumps, records))))

    for name, shown in (("7", [7]), ("conv-3", [6, 7])):
        assert inspect([path, "--record", name]) == 0
        out = capsys.readouterr().out
        heads = [line.split()[1] for line in out.splitlines() if line.startswith("===")]
        assert heads == list(map(str, shown))
        assert out.count("id=conv-3") == len(shown)
    with pytest.raises(UnknownNameError, match=r"there are conv-14, (.|\n)*, \.\.\. \(45 in all\)"):
        inspect([path, "--record", "conv14"])
    texts = [{"text": "<think>a</think> b", "id": f"t{n}"} for n in range(3)]
    path = str(write("b.jsonl", "\n".join(map(json.dumps, texts))))
    assert inspect([path, "--record", "t1"]) == 0
    with pytest.raises(UnknownNameError, match=r'there are t0, t1, t2(.|\n)*"text"} record'):
        inspect([path, "--record", "0"])


@pytest.mark.parametrize("words", [[], ["--report"], ["--json"], ["--record", "0"]])
def test_inspect_of_nothing_but_refusals_is_an_error_after_the_reports(
    words: list[str], write: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, as `rlvr sad spans` says it; the report of each file was printed."""
    files = [str(write(name, "{broken\n")) for name in ("a.jsonl", "b.jsonl")]
    with pytest.raises(ConfigError, match="0 trajectories, 2 records refused") as caught:
        inspect([*files, *words])

    assert caught.value.exit_code == 2
    said = capsys.readouterr().out
    assert all(name in said for name in ("a.jsonl", "b.jsonl"))
    assert said.count("it is no JSON") == 2
    assert inspect([*files, str(write("c.jsonl", json.dumps({"messages": CHAT}))), *words]) == 0


def test_the_report_of_a_file_in_which_nothing_can_be_learnt(write: Any) -> None:
    """A trajectory with no supervised token is counted and named."""
    path = write("a.txt", "<|start|>user<|message|>Hi<|end|><|start|>assistant")
    (report,) = json.loads(rlvr("sad", "inspect", path, "--json").stdout)

    assert report["unsupervised"] == ["0"]
    assert report["formats"] == {"harmony": 1}
    assert report["characters"]["reasoning"] == report["characters"]["action"] == 0
    said = rlvr("sad", "spans", path, "--json")
    assert said.returncode == 0
    assert "1 of 1 trajectory: nothing to learn" in said.stderr


GUEST = """
from rlvr import hookimpl
from rlvr_sad.trajectory_builder import Piece, TrajectoryBuilder
from rlvr_sad.formats.spec import FormatSpec
RLVR_API = 1

class Morse:
    def claims(self, record):
        return isinstance(record, dict) and "morse" in record

    def read(self, record):
        draft = TrajectoryBuilder()
        draft.message([Piece("action", record["morse"])])
        return [draft]

@hookimpl(optionalhook=True)
def sad_formats():
    return [FormatSpec(name="morse", target="morse_plugin:Morse", summary="dots")]
"""


def installed(site: Path, source: str) -> str:
    """The import path with a plugin of this source, as pip would have left it."""
    info = site / "rlvr_morse-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rlvr-morse\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rlvr]\nmorse = morse_plugin\n")
    (site / "morse_plugin.py").write_text(source)
    return os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])


def test_a_format_of_someone_else(tmp_path: Path, write: Any) -> None:
    """A distribution with an entry point: listed, detected, and its records read."""
    path = write("a.jsonl", json.dumps({"morse": ".-"}))
    found = installed(tmp_path / "site", GUEST)

    listed = rlvr("sad", "formats", PYTHONPATH=found)
    assert listed.stdout.splitlines()[0].split()[:2] == ["morse", "morse"]
    shown = rlvr("sad", "spans", path, "--json", PYTHONPATH=found)
    assert json.loads(shown.stdout)["spans"][0] == {"start": 0, "end": 2, "type": "action"}
    assert "no format knows" in rlvr("sad", "spans", path).stderr


def test_a_format_of_someone_else_that_fails(tmp_path: Path, write: Any) -> None:
    """An adapter that raises where it should only look: the plugin is named, exit 3."""
    source = GUEST.replace('return isinstance(record, dict) and "morse" in record', "return 1 / 0")
    found = installed(tmp_path / "site", source)

    done = rlvr("sad", "spans", write("a.jsonl", json.dumps({"messages": CHAT})), PYTHONPATH=found)
    assert done.returncode == 3
    assert "plugin 'morse'" in done.stderr
    assert "ZeroDivisionError" in done.stderr
