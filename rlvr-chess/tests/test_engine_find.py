from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from engine_fixture import script
from engine_fixture import stockfish as stockfish

from rlvr import ExitCode, PrerequisiteError
from rlvr_chess.doctor import stockfish as check
from rlvr_chess.engine.identity import FIX, find_engine


def test_usual_places(stockfish: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian puts it into /usr/games, which is not on every PATH: it is found all the same."""
    if str(stockfish.parent) != "/usr/games":
        pytest.skip(f"stockfish is in {stockfish.parent} here")
    monkeypatch.setenv("PATH", "/bin")
    assert find_engine() == stockfish


def test_given_path_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`chess.engine` is taken, as a path or as a name on PATH, before any stockfish."""
    mine = script(tmp_path, "exit 0\n", "my-engine")
    assert find_engine(str(mine)) == mine
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_engine("my-engine") == mine


def test_missing_engine_is_exit_4(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine anywhere: exit code 4, and the command that installs it."""
    monkeypatch.setattr("rlvr_chess.engine.identity._FOLDERS", ())
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(PrerequisiteError, match="apt-get install stockfish") as caught:
        find_engine()
    assert caught.value.exit_code == ExitCode.PREREQUISITE
    found = check()
    assert (found.ok, found.fix) == (False, FIX)


@pytest.mark.parametrize(("mode", "reason"), [(None, "no such file"), (0o644, "not be run")])
def test_given_path_that_is_none(tmp_path: Path, mode: int | None, reason: str) -> None:
    """A given path that is not there, or may not be run, is named with the reason."""
    path = tmp_path / "engine"
    if mode is not None:
        path.write_text("text")
        path.chmod(mode)
    with pytest.raises(PrerequisiteError, match=reason) as caught:
        find_engine(str(path))
    assert str(path) in str(caught.value)
    assert FIX in str(caught.value)


def test_doctor_tries_the_engine(stockfish: Path) -> None:
    """The check of `rlvr doctor` names the engine, which it has searched with."""
    found = check()
    assert found.ok
    assert "Stockfish" in found.found
    assert str(stockfish) in found.found


def test_doctor_sees_a_broken_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `stockfish` that ends at once fails the check; its fix is still a command."""
    script(tmp_path, "exit 3\n", "stockfish")
    shell = shutil.which("sh")
    assert shell is not None
    monkeypatch.setenv("PATH", str(tmp_path))
    found = check()
    assert not found.ok
    assert "exit status 3" in found.found
    assert found.fix == FIX
