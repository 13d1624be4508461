"""The predecessor's wording and layout of weights, through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pytest
from engine_fixture import positions
from rlvr_fixture import Call
from rlvr_fixture import rlvr as rlvr

pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed: pip install rlvr-algos")
numpy_files = pytest.importorskip("safetensors.numpy", reason="comes with rlvr-torch")

pytestmark = [pytest.mark.integration, pytest.mark.slow]

WIDTH, LAYERS, PLACES, VOCABULARY = 32, 2, 384, 257
END = "<|endoftext|>"


def weights() -> dict[str, Any]:
    """
    Tensors as jrahn/RookWorld-LM-124M names and lays them out, of a tiny shape.

    Those of its linear layers are Conv1D's, (in, out); the head is the embedding and not stored.
    """
    rng = np.random.default_rng(7)
    shapes = {"wte.weight": (VOCABULARY, WIDTH), "wpe.weight": (PLACES, WIDTH)}
    for layer in range(LAYERS):
        for name, sizes in {
            "attn.c_attn": (WIDTH, 3 * WIDTH),
            "attn.c_proj": (WIDTH, WIDTH),
            "mlp.c_fc": (WIDTH, 4 * WIDTH),
            "mlp.c_proj": (4 * WIDTH, WIDTH),
        }.items():
            shapes[f"h.{layer}.{name}.weight"] = sizes
            shapes[f"h.{layer}.{name}.bias"] = sizes[1:]
        for name in ("ln_1", "ln_2"):
            shapes |= {f"h.{layer}.{name}.{part}": (WIDTH,) for part in ("weight", "bias")}
    shapes |= {f"ln_f.{part}": (WIDTH,) for part in ("weight", "bias")}
    return {
        f"transformer.{name}": rng.normal(0.0, 0.05, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def model(folder: Path) -> dict[str, Any]:
    """Write the folder of a model: GPT-2's files, its own BPE without a merge."""
    folder.mkdir()
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]  # GPT-2's letters for bytes
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {byte: chr(byte) for byte in shown}
    letters |= {byte: chr(256 + place) for place, byte in enumerate(hidden)}
    vocabulary = {letters[byte]: byte for byte in range(256)} | {END: VOCABULARY - 1}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    config = {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": LAYERS, "n_head": 2,
        "n_embd": WIDTH, "n_positions": PLACES, "vocab_size": VOCABULARY,
        "activation_function": "gelu_new", "bos_token_id": 256, "eos_token_id": 256,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    tensors = weights()
    numpy_files.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return tensors


def data(write: Any) -> str:
    """Positions with values made by hand, and what a move does in each."""
    rows = []
    for fen in positions(6, seed=11):
        moves = [move.uci() for move in chess.Board(fen).legal_moves]
        rows.append({"fen": fen, "moves": [[u, "cp", 90 - 7 * i] for i, u in enumerate(moves)]})
        rows.append({"fen": fen, "uci": moves[0]})
    return str(write("d.jsonl", *rows))


def test_right_answers_in_its_wording_earn_everything(rlvr: Call, write: Any) -> None:
    """`rlvr score --golden` in profile rookworld: all rows, both tasks."""
    words = ["score", "--plugin", "chess", "--dataset", data(write), "--golden"]
    done = rlvr(*words, "chess.profile=rookworld")
    assert done.returncode == 0, done.stderr
    rewards = [json.loads(t)["reward"] for t in done.stdout.splitlines() if t.startswith("{")]
    assert rewards == [1.0] * 12


def test_its_weights_are_trained(rlvr: Call, write: Any, tmp_path: Path) -> None:
    """Two steps of GRPO: prompts have its padding, the checkpoint has its layout."""
    before = model(tmp_path / "rookworld")
    done = rlvr(
        "run", "--plugin", "chess", "--algo", "grpo", "--model", "gpt2:rookworld", "--steps", "2",
        "--dataset", data(write), "--out", "r", "chess.profile=rookworld", "chess.holdout=0",
        "train.problems=4", "sampler.group_size=2", "sampler.max_tokens=32", "train.lr=1e-5",
        "eval.samples=0", "torch.threads=1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    steps = (tmp_path / "r/metrics.jsonl").read_text().splitlines()
    assert len(steps) == 2
    files = sorted((tmp_path / "r/trajectories").glob("step-*.jsonl"))
    texts = [json.dumps(json.loads(t)) for f in files for t in f.read_text().splitlines()]
    fens = [fen for fen in positions(6, seed=11) if any(f"P: {fen:90}M:" in t for t in texts)]
    assert fens, "no policy problem was asked in its padding"
    saved = tmp_path / "r/checkpoints/step-000002/model/model.safetensors"
    after = numpy_files.load_file(saved)
    assert after.keys() == before.keys()
    assert all(np.allclose(after[name], before[name], atol=1e-3) for name in before)
