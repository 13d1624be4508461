"""The file of `--out`: a full disk is said in words, and an old file is left as it was."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rlvr import CheckpointError, ConfigError
from rlvr.records.owner import writing_to
from rlvr.records.run_directory import write_out


def test_a_full_disk_is_explained_and_the_old_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 6 with the path and the reason; neither a traceback nor half a file."""
    path = tmp_path / "verdicts.jsonl"
    path.write_text("old\n", encoding="utf-8")

    def fill(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rlvr.records.run_directory.os.fsync", fill)
    with pytest.raises(CheckpointError, match=r"verdicts\.jsonl(.|\n)*No space left") as raised:
        write_out(path, "new\n")

    assert raised.value.exit_code == 6
    assert path.read_text(encoding="utf-8") == "old\n"
    assert [p.name for p in tmp_path.iterdir()] == ["verdicts.jsonl"]


def test_another_trouble_is_not_called_a_full_disk(tmp_path: Path) -> None:
    """A folder that went away keeps its own error."""
    with pytest.raises(FileNotFoundError):
        write_out(tmp_path / "gone" / "verdicts.jsonl", "new\n")


def test_a_link_to_itself_is_replaced(tmp_path: Path) -> None:
    """It leads to no file that could be meant; it was called a bug."""
    (tmp_path / "link").symlink_to("link")

    with writing_to(tmp_path / "link"):
        write_out(tmp_path / "link", "new\n")

    assert (tmp_path / "link").read_text(encoding="utf-8") == "new\n"


@pytest.mark.parametrize("name", ["completions", "dataset", "report", "against", "config"])
def test_a_file_that_is_read_is_not_written_over(name: str, tmp_path: Path) -> None:
    """Answers, a data set: their own text would be lost for their verdicts."""
    (tmp_path / "a.jsonl").write_text("answers\n")
    (tmp_path / "link").symlink_to("a.jsonl")
    given = {"dataset": None, "report": b"{}", name: str(tmp_path / "a.jsonl")}

    for path in ("a.jsonl", "link"):
        with (
            pytest.raises(ConfigError, match=f"it is what {name} names, which would be lost"),
            writing_to(tmp_path / path, given),
        ):
            pass
    with writing_to(tmp_path / "b.jsonl", given):
        pass


@pytest.mark.parametrize("target", ["gone/verdicts.jsonl", "/proc/verdicts.jsonl"])
def test_a_link_to_where_nothing_can_be_written_is_refused_before_the_work(
    target: str, tmp_path: Path
) -> None:
    """The file is written where the link leads; so it is tried there."""
    link = tmp_path / "link"
    link.symlink_to(target)
    with pytest.raises(ConfigError, match=f"{link}(.|\\n)*No such file"), writing_to(link):
        pytest.fail("the work began")


def test_a_link_to_a_file_that_is_still_to_come_is_written_through(tmp_path: Path) -> None:
    """The link stays one."""
    link = tmp_path / "link"
    link.symlink_to("file")
    with writing_to(link):
        write_out(link, "new\n")
    assert (link.is_symlink(), (tmp_path / "file").read_text()) == (True, "new\n")
