from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import chess
import chess.pgn
import pytest

from rlvr import ConfigError, ExitCode
from rlvr.cli.main import main
from rlvr_chess.commands.play import _keep
from rlvr_chess.play.session import Session
from rlvr_chess.selfplay.movers import RandomMover

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")

MODEL = "gpt2:new?layers=1&heads=1&width=16&positions=256&seed=1"


def _start(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rlvr.cli.main", "chess", "play", "--model", MODEL]
    return subprocess.Popen(
        [*command, "--max-tokens", "4", "--pgn-out", "games.pgn", "--ascii", *words],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_game_through_a_pipe(tmp_path: Path) -> None:
    """No terminal is needed: moves in, boards out, the model gives up, the game is kept."""
    done = _start(tmp_path)
    out, err = done.communicate("fen\nKe2\ne4\n", timeout=580)
    assert done.returncode == 0, err
    assert "your move: fen\nrnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1\n" in out
    assert "'Ke2' is no legal move here and no command; try: help\n" in out
    assert "4  . . . . P . . .\n" in out
    assert out.count("\nmodel:") == 4
    assert out.endswith("no answer in the grammar: the model resigns\n1-0 (illegal move)\n")
    with (tmp_path / "games.pgn").open() as file:
        game = chess.pgn.read_game(file)
    assert game is not None
    assert [move.uci() for move in game.mainline_moves()] == ["e2e4"]
    assert game.headers["Result"] == "1-0"


@pytest.mark.thorough
def test_ctrl_c_while_a_person_thinks(tmp_path: Path) -> None:
    """Ctrl-C ends at once with exit code 130, and the game so far is kept."""
    done = _start(tmp_path, "--fen", "8/8/8/4k3/8/8/4P3/4K3 w - - 0 1")
    assert done.stdin is not None
    assert done.stdout is not None
    while not (line := done.stdout.readline()).startswith("   a b c"):
        assert line, "it ended before it drew the board"
    done.send_signal(signal.SIGINT)
    assert done.wait(timeout=300) == 130, "standard input is still open: nothing else ended it"
    err = done.communicate()[1]
    assert "interrupted" in err
    with (tmp_path / "games.pgn").open() as file:
        game = chess.pgn.read_game(file)
    assert game is not None
    assert game.board().fen() == "8/8/8/4k3/8/8/4P3/4K3 w - - 0 1"


def test_a_game_that_cannot_be_kept_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the file went bad during the game, the game is on standard output; exit 2."""
    session = Session(mover=RandomMover("model"), board=chess.Board())
    session.take("e4")
    with pytest.raises(ConfigError, match="was to be written"):
        _keep(session, tmp_path / "gone" / "games.pgn")
    assert "1. e4 *" in capsys.readouterr().out


def test_position_that_cannot_be(tmp_path: Path) -> None:
    """A wrong FEN is a usage error, before a model is opened."""
    done = _start(tmp_path, "--fen", "8/8/8/8/8/8/8/4K3 w - - 0 1")
    out, err = done.communicate("", timeout=580)
    assert (done.returncode, out) == (2, "")
    assert "Black has no king" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--temperature=-1"], "-1 is not a finite number from 0 on"),
        (["--temperature", "nan"], "nan is not a finite number from 0 on"),
        (["--pgn-out", "afile/x.pgn"], "afile/x.pgn was to be written"),
        (["--pgn-out", "."], "Is a directory"),
    ],
)
def test_mistakes_are_usage_errors(
    words: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What cannot be is refused with exit code 2, before a model is opened."""
    monkeypatch.chdir(tmp_path)
    Path("afile").write_text("text")
    assert main(["chess", "play", "--model", MODEL, *words]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert [path.name for path in tmp_path.iterdir()] == ["afile"]
