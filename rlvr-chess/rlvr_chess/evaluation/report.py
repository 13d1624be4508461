"""The report of an evaluation as files: figures, boards of the worst mistakes, games.

`report.md` shows the SVG boards beside it; `games-NAME.pgn` are the games of self-play and matches.
A board that cannot be drawn is left out with its reason; its caption stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from attrs import frozen

from rlvr import ConfigError, Metric
from rlvr_chess.evaluation.bench import Bench
from rlvr_chess.evaluation.environment import Foretold
from rlvr_chess.play.board import BAD, GOOD, board_svg, game_pgn

T = TypeVar("T")

WORST = 8
"""Mistakes of each kind that are shown."""
MORE_GAMES = 40
"""Games of a match that are written out; the figures are of all of them."""


@frozen(kw_only=True)
class Mistake:
    """One that is shown: the position, (UCI, colour) of arrows on it, what is said below."""

    name: str
    fen: str
    arrows: tuple[tuple[str, str], ...] = ()
    caption: str


def write_report(folder: Path, bench: Bench, figures: Sequence[Metric]) -> None:
    """
    Write the report; files of an earlier one are overwritten.

    Raises:
        ConfigError: The folder cannot be written.
    """
    mistakes = [*_policy_mistakes(bench), *_environment_mistakes(bench), *_puzzle_mistakes(bench)]
    texts, shown = _drawn(mistakes)
    texts["report.md"] = _page(bench, figures, shown)
    for name, games in bench.found.games.items():
        texts[f"games-{name}.pgn"] = "".join(game_pgn(game) for game in games[:MORE_GAMES])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"a report was to be written to chess.report={folder}.",
            f"found: {error.strerror}",
            "give a folder that can be written",
        ) from error


def _drawn(mistakes: Iterable[Mistake]) -> tuple[dict[str, str], list[str]]:
    """The SVG of each file name, and what the page says of each mistake."""
    boards, shown = {}, []
    for one in mistakes:
        try:
            boards[f"{one.name}.svg"] = board_svg(one.fen, arrows=one.arrows)
        except ValueError as error:  # a FenError, or a text that is no move
            shown += [f"{one.name}: no board, it cannot be drawn: {error}.", "", one.caption, ""]
        else:
            shown += [f"![{one.name}]({one.name}.svg)", "", one.caption, ""]
    return boards, shown


def _page(bench: Bench, figures: Sequence[Metric], shown: Iterable[str]) -> str:
    lines = [
        "# Chess evaluation",
        "",
        f"Policy {bench.policy.digest or 'without a digest'}, split {bench.split}, "
        f"seed {bench.seed}, profile {bench.config.wording}. Intervals are of 95 %.",
        "",
        "| figure | value | interval | n | note |",
        "| --- | --- | --- | --- | --- |",
        *(_row(figure) for figure in figures),
        "",
        "## Worst mistakes",
        "",
        "Green: the right move. Red: the model's.",
        "",
        *shown,
    ]
    games = [f"- [games-{name}.pgn](games-{name}.pgn)" for name in bench.found.games]
    return "\n".join([*lines, "## Games", "", *games, ""])


def _row(figure: Metric) -> str:
    if math.isnan(figure.value):
        return f"| {figure.name} | - | - | 0 | left out: {figure.note} |"
    is_bounded = not math.isnan(figure.low) and not math.isnan(figure.high)
    interval = f"[{figure.low:.4g}, {figure.high:.4g}]" if is_bounded else "-"
    return f"| {figure.name} | {figure.value:.4g} | {interval} | {figure.n} | {figure.note} |"


def _policy_mistakes(bench: Bench) -> Iterator[Mistake]:
    """Legal choices that gave the most away."""
    legal = {name: one for name, one in bench.found.policy.items() if one.regret and one.is_legal}
    for place, (name, one) in _worst(legal, lambda one: -one.regret):
        values, chosen = one.values, one.answer.best if one.answer else ""
        best = values.moves[0][0]
        yield Mistake(
            name=f"policy-{place}",
            fen=values.fen,
            arrows=((best, GOOD), (chosen, BAD)),
            caption=f"Position {name}: {chosen} ({values.score_text(chosen)}) gives away "
            f"{one.regret:.2f} of win probability; {best} is {values.score_text(best)}. "
            f"`{values.fen}`",
        )


def _environment_mistakes(bench: Bench) -> Iterator[Mistake]:
    """Boards that came out wrong after a legal move, those with the most wrong fields first."""
    told = bench.found.environment.items()
    wrong = {n: one for n, one in told if one.answer and not one.is_exact and one.truth.is_legal}
    for place, (name, one) in _worst(wrong, lambda one: -_wrong_fields(one)):
        yield Mistake(
            name=f"environment-{place}",
            fen=one.truth.fen,
            caption=f"Move {name} ({one.category or 'no category'}): the board becomes "
            f"`{one.truth.fen}`; the model says `{one.answer.fen if one.answer else ''}`.",
        )


def _wrong_fields(one: Foretold) -> int:
    said = one.answer.fen.split() if one.answer else []
    return sum(a != b for a, b in zip(said, one.truth.fen.split(), strict=False))


def _puzzle_mistakes(bench: Bench) -> Iterator[Mistake]:
    """The easiest puzzles that went wrong."""
    failed = {name: one for name, one in bench.found.puzzles.items() if not one.is_whole}
    for place, (name, one) in _worst(failed, lambda one: one.puzzle.rating):
        said = one.wrong or "no legal move"
        yield Mistake(
            name=f"puzzle-{place}",
            fen=one.board.fen(),
            arrows=((one.expected, GOOD), *(((one.wrong, BAD),) if one.wrong else ())),
            caption=f"Puzzle {name}, rated {one.puzzle.rating}: {said} instead of {one.expected}.",
        )


def _worst(
    found: Mapping[str, T], rank: Callable[[T], float]
) -> Iterator[tuple[int, tuple[str, T]]]:
    """Place (from 1), id and answer of the first `WORST`; equal ranks are ordered by id."""
    ordered = sorted(found.items(), key=lambda entry: (rank(entry[1]), entry[0]))
    return enumerate(ordered[:WORST], 1)
