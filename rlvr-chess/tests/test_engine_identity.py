from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from attrs import evolve
from engine_fixture import script
from engine_fixture import stockfish as stockfish

from rlvr import PrerequisiteError
from rlvr_chess.engine.identity import EngineIdentity, identify

FEN = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
IDENTITY = EngineIdentity(name="Stockfish 15.1", net="nn-1.nnue", binary="a" * 64, nodes=100)


def test_key_is_the_sha256_of_its_parts() -> None:
    """Anybody can compute a key: sha256 of a JSON list of engine, settings, nodes and FEN."""
    options = '[["Hash", 16], ["MultiPV", 256], ["Threads", 1]]'
    text = f'["Stockfish 15.1", "nn-1.nnue", "{"a" * 64}", {options}, 100, "{FEN}"]'
    assert IDENTITY.key(FEN) == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        {"name": "Stockfish 16"},
        {"net": "nn-2.nnue"},
        {"binary": "b" * 64},
        {"options": {"Hash": 32, "MultiPV": 256, "Threads": 1}},
        {"nodes": 101},
    ],
)
def test_every_part_counts(change: dict[str, object]) -> None:
    """Another value of any part is another key, and the difference is said in words."""
    other = evolve(IDENTITY, **change)  # type: ignore[arg-type]
    assert other.key(FEN) != IDENTITY.key(FEN)
    assert IDENTITY.difference(other)
    assert not IDENTITY.difference(IDENTITY)


def test_halfmove_clock_is_in_the_key() -> None:
    """Scores change near the fifty-move rule, so clocks are part of the position."""
    assert IDENTITY.key(FEN) != IDENTITY.key(FEN.replace("0 1", "7 1"))


def test_json_round_trip() -> None:
    """The header of a table gives the identity back."""
    assert EngineIdentity.of_json(json.loads(json.dumps(IDENTITY.to_json()))) == IDENTITY


def test_installed_engine(stockfish: Path) -> None:
    """The installed engine says its name and net; the hash is that of its file."""
    found = identify(stockfish, 7)
    assert found.name.startswith("Stockfish")
    assert found.net.startswith("nn-")
    assert found.binary == hashlib.sha256(stockfish.read_bytes()).hexdigest()
    assert found.nodes == 7


def test_another_file_is_asked_again(stockfish: Path, tmp_path: Path) -> None:
    """What was learnt of a path is forgotten when the file changes: an upgrade is noticed."""
    path = script(tmp_path, f"exec {stockfish}\n")
    first = identify(path, 1)
    script(tmp_path, f"exec {stockfish} # longer\n")
    assert identify(path, 1).binary != first.binary


@pytest.mark.parametrize(
    ("text", "reason"),
    [("exit 3\n", "exit status 3"), ("echo hello\n", "hello"), ("kill -9 $$\n", "exit status -9")],
)
def test_not_an_engine(tmp_path: Path, text: str, reason: str) -> None:
    """A program that does not speak UCI is a missing prerequisite; its words are shown."""
    with pytest.raises(PrerequisiteError, match=reason):
        identify(script(tmp_path, text), 1)
