from __future__ import annotations

import io
import json
import os
from pathlib import Path

import chess.pgn
import pytest
from engine_fixture import stockfish as stockfish
from rlvr_here import rlvr_here

from rlvr import ExitCode
from rlvr.cli.main import main
from rlvr_chess.fen import four_fields, read_board
from rlvr_chess.rows.read import read_data

pytestmark = pytest.mark.timeout(600)
pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")

MODEL = "gpt2:new?layers=1&heads=1&width=16&positions=256&seed=1"
SELFPLAY = ["chess", "selfplay", "--model", MODEL, "--max-tokens", "4"]


def _play(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main([*SELFPLAY, *words, "--json"]) == 0
    told: dict[str, object] = json.loads(capsys.readouterr().out)
    return told


def test_games_and_positions_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """PGN that python-chess reads, a data set of positions that the task reads, a summary."""
    out, found = tmp_path / "games.pgn", tmp_path / "found.jsonl"
    words = ["--games", "3", "--illegal", "random", "--plies", "6", "--per-game", "2"]
    told = _play(capsys, *words, "--out", str(out), "--positions", str(found))
    assert told["games"] == 3
    assert told["reasons"] == {"ply cap": 3}
    assert told["plies"] == told["illegal_answers"] == 18, "an untrained model knows no line"
    assert (told["illegal_rate"], told["legal_plies"], told["openings"]) == (1.0, 0.0, 3)

    text = io.StringIO(out.read_text())
    games = [game for _ in range(3) if (game := chess.pgn.read_game(text)) is not None]
    assert chess.pgn.read_game(text) is None
    assert [game.headers["Round"] for game in games] == ["1", "2", "3"]
    assert all(not game.errors and game.headers["White"] == MODEL for game in games)

    fens = [json.loads(line)["fen"] for line in found.read_text().splitlines()]
    assert len({four_fields(fen) for fen in fens}) == len(fens) == 6
    assert all(read_board(fen).fen() == fen for fen in fens)
    assert [getattr(row.payload, "fen", "") for row in read_data(found).rows] == fens  # type: ignore[union-attr]


def test_equal_seeds_play_equal_games(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The files are the same byte by byte; another seed chooses other openings."""
    words = ["--games", "2", "--illegal", "random", "--plies", "4", "--blunders", "0.5"]
    texts = []
    for number, seed in enumerate(("7", "7", "8")):
        out = tmp_path / f"{number}.pgn"
        _play(capsys, *words, "--seed", seed, "--out", str(out))
        texts.append(out.read_text())
    assert texts[0] == texts[1] != texts[2]


def test_engine_awards_games(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    stockfish: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With `--value` a queen ahead decides the game, before the cap."""
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path))
    openings = tmp_path / "queen.fen"
    openings.write_text("4k3/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQ - 0 1\n")
    words = ["--openings", str(openings), "--games", "1", "--illegal", "random", "--plies", "30"]
    told = _play(capsys, *words, "--value", "900", "--value-nodes", "3000")
    assert told["reasons"] == {"value": 1}
    assert told["results"] == {"1-0": 1}
    assert told["plies"] == 3
    told = _play(capsys, *words[:-1], "4", "--value", "900")
    assert told["reasons"] == {"ply cap": 1}, "nobody is asked, and no table holds it"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--value", "5000"], "'value_limit' must be < 2000"),
        (["--games", "200", "--quota", "1"], "allow more an opening"),
        (["--openings", "none.txt"], "no such file"),
        (["--out", "none/games.pgn"], "no such folder"),
        (["--blunders", "2"], "not in 0..1"),
        (["--games", "0"], "less than 1"),
        (["--temperature=-1"], "-1 is not a finite number from 0 on"),
        (["--temperature", "nan"], "nan is not a finite number from 0 on"),
        (["--temperature", "1e-40"], "1e-40 is less than 1e-06; the first choice is 0"),
        (["--first", "inf"], "inf is not a finite number from 0 on"),
        (["--first", "warm"], "invalid temperature value: 'warm'"),
        (["--out", "."], "Is a directory"),
        (["chess.profil=rookworld"], "did you mean"),
        (["--run", "none"], "not allowed with argument --model"),
    ],
)
def test_mistakes_are_usage_errors(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be is refused with exit code 2, before a game is played."""
    assert main([*SELFPLAY, *words]) == ExitCode.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.integration
def test_training_grows_by_its_own_games(tmp_path: Path) -> None:
    """`chess.selfplay_games` in a run: found positions are in the checkpoint, and are asked."""
    fens = ["r1bqk1nr/pppp1ppp/2n5/2b1p3/2B1P3/5N2/PPPP1PPP/RNBQK2R w KQkq - 4 4"]
    (tmp_path / "one.fen").write_text("\n".join(fens))
    words = ["--plugin", "chess", "--algo", "grpo", "--model", MODEL, "--steps", "2"]
    words += ["--dataset", "one.fen", "--out", "r", "--json", "chess.holdout=0"]
    words += ["chess.tasks=environment", "chess.selfplay_games=2", "chess.selfplay_plies=6"]
    words += ["train.problems=6", "sampler.group_size=2", "sampler.max_tokens=8"]
    words += ["checkpoint.every=1", "eval.samples=0"]
    own = {"OMP_NUM_THREADS": "1", "RLVR_CACHE_DIR": str(tmp_path / "cache")}
    done = rlvr_here("run", *words, cwd=tmp_path, env={**os.environ, **own})
    assert done.returncode == 0, done.stderr
    states = [json.loads(p.read_text()) for p in sorted(tmp_path.glob("r/checkpoints/*/*.json"))]
    found = [s["state"]["memory"]["task"]["positions"] for s in states]
    assert {p["step"] for p in found[-1]} == {0, 1}
    assert len(found[0]) < len(found[-1])
    trained = [p.read_text() for p in (tmp_path / "r/trajectories").iterdir()]
    assert any("selfplay/" in text for text in trained)
