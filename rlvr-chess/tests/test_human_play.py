from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr_chess.human.pgn import read_pgn

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
        # a shell's background job is started with SIGINT ignored, and would hand that on
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
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
    game = read_pgn(tmp_path / "games.pgn")[0]
    assert [move.uci() for move in game.mainline_moves()] == ["e2e4"]
    assert game.headers["Result"] == "1-0"


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
    game = read_pgn(tmp_path / "games.pgn")[0]
    assert game.board().fen() == "8/8/8/4k3/8/8/4P3/4K3 w - - 0 1"


def test_position_that_cannot_be(tmp_path: Path) -> None:
    """A wrong FEN is a usage error, before a model is opened."""
    done = _start(tmp_path, "--fen", "8/8/8/8/8/8/8/4K3 w - - 0 1")
    out, err = done.communicate("", timeout=580)
    assert (done.returncode, out) == (2, "")
    assert "Black has no king" in err
