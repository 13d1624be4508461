"""The report of an evaluation as files: figures, boards of the worst mistakes, games.

`report.md` shows the SVG boards beside it; `games-NAME.pgn` are the games of self-play and matches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from rlvr.errors import ConfigError, explain
from rlvr.types import Figure
from rlvr_chess.evaluation.bench import Bench
from rlvr_chess.evaluation.environment import Foretold
from rlvr_chess.evaluation.policy import Judged
from rlvr_chess.evaluation.puzzles import Attempt
from rlvr_chess.human.pgn import game_pgn
from rlvr_chess.human.svg import BAD, GOOD, board_svg

WORST = 8
"""Mistakes of each kind that are shown."""
MORE_GAMES = 40
"""Games of a match that are written out; the figures are of all of them."""


def write_report(folder: Path, bench: Bench, figures: Sequence[Figure]) -> None:
    """
    Write the report; files of an earlier one are overwritten.

    Raises:
        ConfigError: The folder cannot be written.
    """
    boards = _policy_boards(bench) + _environment_boards(bench) + _puzzle_boards(bench)
    texts = {"report.md": _page(bench, figures, boards)}
    texts |= {f"{name}.svg": svg for name, svg, _ in boards}
    for name, games in bench.found.games.items():
        texts[f"games-{name}.pgn"] = "".join(game_pgn(game) for game in games[:MORE_GAMES])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            explain(
                f"a report was to be written to chess.report={folder}.",
                f"found: {error.strerror}",
                "give a folder that can be written",
            )
        ) from error


def _page(bench: Bench, figures: Sequence[Figure], boards: Iterable[tuple[str, str, str]]) -> str:
    lines = [
        "# Chess evaluation",
        "",
        f"Policy {bench.policy.digest or 'without a digest'}, split {bench.split}, "
        f"seed {bench.seed}, profile {bench.profile}. Intervals are of 95 %.",
        "",
        "| figure | value | interval | n | note |",
        "| --- | --- | --- | --- | --- |",
        *(_row(figure) for figure in figures),
        "",
        "## Worst mistakes",
        "",
        "Green: the right move. Red: the model's.",
        "",
    ]
    for name, _, caption in boards:
        lines += [f"![{name}]({name}.svg)", "", caption, ""]
    games = [f"- [games-{name}.pgn](games-{name}.pgn)" for name in bench.found.games]
    return "\n".join([*lines, "## Games", "", *games, ""])


def _row(figure: Figure) -> str:
    if math.isnan(figure.value):
        return f"| {figure.name} | - | - | 0 | left out: {figure.note} |"
    interval = f"[{figure.low:.4g}, {figure.high:.4g}]"
    return f"| {figure.name} | {figure.value:.4g} | {interval} | {figure.n} | {figure.note} |"


def _policy_boards(bench: Bench) -> list[tuple[str, str, str]]:
    """Legal choices that gave the most away."""
    legal = [(name, one) for name, one in bench.found.policy.items() if one.is_legal]
    legal.sort(key=lambda entry: (-entry[1].regret, entry[0]))
    return [
        (f"policy-{place}", *_policy_board(name, one))
        for place, (name, one) in enumerate(legal[:WORST], 1)
        if one.regret > 0
    ]


def _policy_board(name: str, one: Judged) -> tuple[str, str]:
    best = one.values.moves[0][0]
    chosen = one.answer.best if one.answer else ""
    arrows = [(best, GOOD), (chosen, BAD)]
    caption = (
        f"Position {name}: {chosen} ({one.values.score_text(chosen)}) gives away "
        f"{one.regret:.2f} of win probability; {best} is {one.values.score_text(best)}. "
        f"`{one.values.fen}`"
    )
    return board_svg(one.values.fen, arrows=arrows), caption


def _environment_boards(bench: Bench) -> list[tuple[str, str, str]]:
    """Boards that came out wrong after a legal move, those with the most wrong fields first."""
    wrong = [
        (name, one)
        for name, one in bench.found.environment.items()
        if one.answer is not None and not one.is_exact and one.truth.is_legal
    ]
    wrong.sort(key=lambda entry: (-_wrong_fields(entry[1]), entry[0]))
    return [
        (
            f"environment-{place}",
            board_svg(one.truth.new_fen),
            f"Move {name} ({one.category or 'no category'}): the board is as shown, "
            f"`{one.truth.new_fen}`; the model says `{one.answer.fen if one.answer else ''}`.",
        )
        for place, (name, one) in enumerate(wrong[:WORST], 1)
    ]


def _wrong_fields(one: Foretold) -> int:
    said = one.answer.fen.split() if one.answer else []
    return sum(a != b for a, b in zip(said, one.truth.new_fen.split(), strict=False))


def _puzzle_boards(bench: Bench) -> list[tuple[str, str, str]]:
    """The easiest puzzles that went wrong."""
    failed = [(name, one) for name, one in bench.found.puzzles.items() if not one.is_whole]
    failed.sort(key=lambda entry: (entry[1].puzzle.rating, entry[0]))
    return [
        (f"puzzle-{place}", *_puzzle_board(name, one))
        for place, (name, one) in enumerate(failed[:WORST], 1)
    ]


def _puzzle_board(name: str, one: Attempt) -> tuple[str, str]:
    arrows = [(one.expected, GOOD), *([(one.wrong, BAD)] if one.wrong else [])]
    said = one.wrong or "no legal move"
    caption = f"Puzzle {name}, rated {one.puzzle.rating}: {said} instead of {one.expected}."
    return board_svg(one.fen, arrows=arrows), caption
