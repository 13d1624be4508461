from __future__ import annotations

import io
from pathlib import Path
from xml.etree import ElementTree

import chess
import pytest

from rlvr import ConfigError, ExitCode, UnknownNameError
from rlvr_chess.commands.board import board
from rlvr_chess.fen import FenError
from rlvr_chess.play.board import GOOD, board_pgn, board_svg, board_text

ITALIAN = "r1bqk1nr/pppp1ppp/2n5/2b1p3/2B1P3/5N2/PPPP1PPP/RNBQK2R w KQkq - 4 4"


def test_board_as_letters() -> None:
    """Rank 8 above for White, rank 1 above and files turned round for Black."""
    position = chess.Board(ITALIAN)
    assert board_text(position, ascii_only=True) == (
        "8  r . b q k . n r\n"
        "7  p p p p . p p p\n"
        "6  . . n . . . . .\n"
        "5  . . b . p . . .\n"
        "4  . . B . P . . .\n"
        "3  . . . . . N . .\n"
        "2  P P P P . P P P\n"
        "1  R N B Q K . . R\n"
        "   a b c d e f g h"
    )
    turned = board_text(position, ascii_only=True, flipped=True).splitlines()
    assert turned[0] == "1  R . . K Q B N R"
    assert turned[-1] == "   h g f e d c b a"


def test_board_as_symbols() -> None:
    """White's pieces are the outlined symbols, Black's the filled ones."""
    first, last = board_text(chess.Board(ITALIAN)).splitlines()[0:8:7]
    assert first == "8  ♜ · ♝ ♛ ♚ · ♞ ♜"
    assert last == "1  ♖ ♘ ♗ ♕ ♔ · · ♖"


def test_svg_is_a_drawing_of_the_position() -> None:
    """Well-formed, one use of a piece's drawing for each piece, the same text every time."""
    text = board_svg(ITALIAN, move="f8c5", arrows=[("f3g5", GOOD)], size=240)
    root = ElementTree.fromstring(text)
    assert root.attrib["width"] == "240"
    pieces = [
        e for e in root.iter() if e.tag.endswith("use") and "-" in str(list(e.attrib.values()))
    ]
    assert len(pieces) == len(chess.Board(ITALIAN).piece_map()) == 32
    assert "lastmove" in text
    assert GOOD.lower() in text.lower()
    assert board_svg(ITALIAN, move="f8c5", arrows=[("f3g5", GOOD)], size=240) == text
    assert board_svg(ITALIAN, flipped=True) != board_svg(ITALIAN)


def test_svg_draws_what_is_over_and_refuses_what_cannot_be() -> None:
    """Reports show mates; an impossible position is an error, not a drawing."""
    mated = "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3"
    assert "check" in board_svg(mated)
    with pytest.raises(FenError, match="Black has no king"):
        board_svg("8/8/8/8/8/8/8/4K3 w - - 0 1")


def test_command_draws_a_fen(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Board, FEN, and the SVG file that was asked for."""
    assert board([ITALIAN, "--ascii", "--svg", str(tmp_path / "b.svg")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("8  r . b q k . n r")
    assert out.splitlines()[-1] == ITALIAN
    assert (tmp_path / "b.svg").read_text() == board_svg(ITALIAN)


def test_command_draws_a_place_of_a_game(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`--game` and `--ply` choose; without a ply it is the end of the game."""
    played = chess.Board()
    for san in ("e4", "e5", "Nf3", "Nc6", "Bc4", "Bc5"):
        played.push_san(san)
    path = tmp_path / "games.pgn"
    path.write_text(board_pgn(chess.Board(ITALIAN), {"Result": "*"}) + board_pgn(played, {}))
    board([str(path), "--game", "2"])
    assert capsys.readouterr().out.splitlines()[-1] == ITALIAN
    board([str(path), "--game", "2", "--ply", "1"])
    assert capsys.readouterr().out.splitlines()[-1].endswith(" b KQkq - 0 1")
    for wrong, said in ((["--game", "3"], "2 games"), (["--game", "2", "--ply", "7"], "6 half")):
        with pytest.raises(ConfigError, match=said):
            board([str(path), *wrong])


def test_svg_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 with the path and the reason, before anything is drawn; a folder stays as it is."""
    (tmp_path / "afile").write_text("text")
    for path, said in ((tmp_path / "afile" / "b.svg", "no such folder"), (tmp_path, "directory")):
        with pytest.raises((ConfigError, UnknownNameError), match=said) as caught:
            board([ITALIAN, "--svg", str(path)])
        assert f"{path} was to be written" in str(caught.value)
        assert caught.value.exit_code == ExitCode.USAGE
    assert capsys.readouterr().out == ""


def test_command_reads_no_further_than_the_game(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A mistake in game 2 is none of game 1's; game 2 and later ones are refused for it."""
    path = tmp_path / "games.pgn"
    path.write_text('[White "a"]\n\n1. e4 *\n\n[White "b"]\n\n1. e4 Ke7 *\n\n1. d4 *\n')
    assert board([str(path), "--game", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(" b KQkq - 0 1")
    for number in ("2", "3"):
        with pytest.raises(ConfigError, match="game 2: illegal san"):
            board([str(path), "--game", number])


def test_command_reads_a_fen_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-` takes one line, so that positions can be piped."""
    monkeypatch.setattr("sys.stdin", io.StringIO(ITALIAN + "\n"))
    board(["-"])
    assert capsys.readouterr().out.splitlines()[-1] == ITALIAN


def test_command_says_what_is_wrong_with_a_fen() -> None:
    """A mistake is said in the three sentences, exit 2."""
    with pytest.raises(ConfigError, match="Black has no king"):
        board(["8/8/8/8/8/8/8/4K3 w - - 0 1"])
