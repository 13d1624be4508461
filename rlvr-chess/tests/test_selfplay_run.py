"""A run with self-play through the command line: killed, resumed, and evaluated afterwards."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import chess
import pytest
from engine_fixture import positions
from engine_fixture import stockfish as stockfish
from rlvr_fixture import Call, command
from rlvr_fixture import rlvr as rlvr
from rlvr_process import start_rlvr

pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed: pip install rlvr-algos")

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

STEPS = 4
CHANGING = ("time/", "rate/", "verify/cost_s", "verify/cached", "pipeline/wait_s", "trust/")
"""What takes how long or comes when it is ready, and what a store remembers of the killed run."""
OPTIONS = [
    "chess.selfplay_games=2", "chess.selfplay_plies=4", "chess.selfplay_keep=8",
    "chess.selfplay_age=2", "train.problems=4", "sampler.group_size=2", "sampler.max_tokens=96",
    "train.decay=constant", "eval.samples=0", "checkpoint.every=1", "checkpoint.keep=9",
    "torch.threads=1",
]  # fmt: skip


def data(folder: Path) -> Path:
    """Positions with values made by hand, four to train on and two held out."""
    rows = []
    for number, fen in enumerate(positions(6, seed=8)):
        moves = [move.uci() for move in chess.Board(fen).legal_moves]
        values = [[uci, "cp", 200 - 50 * place] for place, uci in enumerate(moves)]
        split = "train" if number < 4 else "test"
        rows.append({"fen": fen, "moves": values, "split": split})
    path = folder / "positions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def train(folder: Path, name: str) -> list[str]:
    run = ["run", "--plugin", "chess", "--algo", "grpo", "--dataset", str(data(folder))]
    return [*run, "--steps", str(STEPS), "--seed", "3", "--out", name, *OPTIONS]


def told(run: Path) -> list[dict[str, Any]]:
    """The metrics of each step, without what is never the same."""
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in step.items() if not k.startswith(CHANGING)} for step in steps]


def ids(run: Path) -> list[list[str]]:
    """Ids of the problems of each step."""
    files = sorted((run / "trajectories").glob("step-*.jsonl"))
    return [[json.loads(line)["id"] for line in file.read_text().splitlines()] for file in files]


def killed_after(folder: Path, step: int, argv: list[str], environ: dict[str, str]) -> None:
    """Start a command in `folder` and kill it (-9) when run `b` has written a checkpoint."""
    process = start_rlvr(*argv[3:], cwd=folder, env=environ)
    written = folder / f"b/checkpoints/step-{step:06d}/manifest.json"
    until = time.monotonic() + 200
    try:
        while not written.exists():
            assert process.poll() is None, "it ended before"
            assert time.monotonic() < until, "no checkpoint was written"
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()


def test_a_killed_run_is_resumed_as_if_nothing_had_been(
    stockfish: Path, rlvr: Call, tmp_path: Path
) -> None:
    """
    Killed (-9) after a checkpoint, `--resume auto`: metrics, problems, weights are the same.

    The whole run is in this process, which has another seed of hashes than those that are forked.
    Self-play goes on with the positions it had found. All that it ever found count as trained on,
    the held-out positions do not; pass rates are kept of those that it still holds.
    """
    whole = rlvr(*train(tmp_path, "a"))
    assert whole.returncode == 0, whole.stderr

    killed_after(tmp_path, 2, *command(tmp_path, *train(tmp_path, "b")))
    assert not (tmp_path / f"b/checkpoints/step-{STEPS:06d}").exists()
    again = (*train(tmp_path, "b"), "--resume", "auto")
    resumed = rlvr(*again, forks=True)
    assert resumed.returncode == 0, resumed.stderr

    a, b = tmp_path / "a", tmp_path / "b"
    assert told(a) == told(b)
    assert len(told(b)) == STEPS
    assert ids(a) == ids(b)
    assert any(name.startswith("selfplay/") for name in ids(b)[-1])
    last = [run / f"checkpoints/step-{STEPS:06d}/model/model.safetensors" for run in (a, b)]
    assert last[0].read_bytes() == last[1].read_bytes()

    record, state = of_checkpoint(b)
    assert record["families_complete"] is True
    found = {position["fen"].rpartition(" ")[0].rpartition(" ")[0] for position in state}
    assert found <= set(record["families"])
    assert len(record["families"]) > 4 + len(found), "those that left the buffer are named too"

    done = rlvr("eval", "--run", "b", "--split", "all", *QUICK)
    assert done.returncode == 0, done.stderr
    score = json.loads(done.stdout)
    assert (score["held_out"], score["seen"]) == (False, ["1", "2", "3", "4"])
    assert score["unseen"]["problems"] == 2


QUICK = ["--samples", "1", "--figures", "no", "--json", "torch.threads=1"]


def of_checkpoint(run: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the last weights were trained on, and the positions that self-play holds."""
    folder = run / f"checkpoints/step-{STEPS:06d}"
    state = json.loads((folder / "manifest.json").read_text())["state"]
    history, positions = state["history"], state["memory"]["task"]["positions"]
    kept = [name for name in history if name.startswith("selfplay/")]
    assert len({name.removesuffix("/env") for name in kept}) <= len(positions)
    return json.loads((folder / "model/trained-on.json").read_text()), positions
