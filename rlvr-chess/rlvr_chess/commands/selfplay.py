"""The subcommand `rlvr chess selfplay`: a model plays itself, many games at once."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import attrs

from rlvr import ConfigError
from rlvr_chess.commands.arguments import (
    add_model_flags,
    check_writable,
    count,
    open_player,
    parser_of,
    share,
    temperature,
)
from rlvr_chess.config import ChessConfig
from rlvr_chess.play.board import game_pgn
from rlvr_chess.selfplay.arena import Crowd, Pairing, play
from rlvr_chess.selfplay.buffer import harvest
from rlvr_chess.selfplay.game import ILLEGAL_RULES, Game, Judge, Rules, as_text, summary
from rlvr_chess.selfplay.movers import MixMover, Mover, warm
from rlvr_chess.selfplay.openings import book, choose_openings, read_openings
from rlvr_chess.tables.store import TableStore
from rlvr_chess.values import ActionValues


def selfplay(argv: list[str]) -> int:
    """Play, write PGN and positions, print what happened."""
    options = _parser().parse_intermixed_args(argv)
    rules = _rules(options)
    for path in (options.out, options.positions):
        if path is not None:
            check_writable(path)
    begun = time.monotonic()
    games = asyncio.run(_games(options, rules))
    seconds = time.monotonic() - begun
    if options.out is not None:
        text = "".join(game_pgn(g, {"Round": str(n)}) for n, g in enumerate(games, start=1))
        options.out.write_text(text, encoding="utf-8")
    if options.positions is not None:
        options.positions.write_text("".join(_position_lines(games, options)), encoding="utf-8")
    told = summary(games) | {"seconds": round(seconds, 2)}
    print(json.dumps(told) if options.json else as_text(told))
    return 0


async def _games(options: argparse.Namespace, rules: Rules) -> list[Game]:
    known = read_openings(options.openings) if options.openings else book()
    openings = choose_openings(known, options.games, seed=options.seed, quota=options.quota)
    async with open_player(options) as (player, config):
        first = options.temperature if options.first is None else options.first
        by_ply = warm(options.temperature, first=first, plies=options.warm)
        mover: Mover = attrs.evolve(player, temperature=by_ply)
        if options.blunders:
            mover = MixMover(mover, 1.0 - options.blunders, name=mover.name)
        async with _judge(options, config) as judge:
            return await play(
                [Pairing(white=mover, black=mover, opening=opening) for opening in openings],
                rules=rules,
                seed=options.seed,
                judge=judge,
                crowd=Crowd(options.crowd),
                on_end=None if options.json else _tell,
            )


@contextlib.asynccontextmanager
async def _judge(options: argparse.Namespace, config: ChessConfig) -> AsyncIterator[Judge | None]:
    """The judge that awards games: tables and cache; with `--value-nodes` the engine too."""
    if not options.value:
        yield None
        return
    config = attrs.evolve(config, nodes=options.value_nodes or config.nodes)
    async with TableStore.of(config) as store:

        async def known(fen: str) -> ActionValues | None:
            return store.peek(fen)

        yield store.values if options.value_nodes else known


def _tell(game: Game) -> None:
    print(f"{game.result:7} {game.reason}, {game.plies} plies, {game.opening}", file=sys.stderr)


def _position_lines(games: Iterable[Game], options: argparse.Namespace) -> Iterable[str]:
    """`{"id", "fen"}` a line: a data set of positions, no position twice."""
    seen: set[str] = set()
    for number, game in enumerate(games, start=1):
        for found in harvest(game, options.per_game, seed=f"{options.seed}/{number}"):
            if found.key not in seen:
                seen.add(found.key)
                yield json.dumps({"id": f"{number}.{found.ply}", "fen": found.fen}) + "\n"


def _rules(options: argparse.Namespace) -> Rules:
    try:
        return Rules(
            max_plies=options.plies,
            illegal=options.illegal,
            retries=options.retries,
            resign_below=options.resign,
            value_limit=options.value,
        )
    except ValueError as error:
        raise ConfigError(
            "games by these rules were asked for.", f"found: {error}", "see --help"
        ) from error


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(
        "selfplay",
        "Let a model play itself from common openings, and keep the games.",
        "selfplay --games 16 --out games.pgn",
        "selfplay --run runs/NAME --temperature 0.6 --illegal loss --json",
        "selfplay --games 64 --blunders 0.1 --positions found.jsonl",
    )
    add_model_flags(parser)
    add = parser.add_argument
    add("--games", type=count, default=16, help="games, all at once (default: 16)")
    add("--out", type=Path, metavar="FILE", help="write the games as PGN")
    add("--seed", type=int, default=0, help="of openings and moves")
    add("--json", action="store_true", help="one JSON object on stdout")
    games = parser.add_argument_group("games")
    add = games.add_argument
    add("--plies", type=int, default=300, help="after the opening, then a draw (default: 300)")
    add("--illegal", choices=ILLEGAL_RULES, default="loss", help="what such an answer costs")
    add("--retries", type=int, default=3, help="times a model is asked again under resample")
    add("--resign", type=float, default=0.0, metavar="P", help="give up below this own estimate")
    add("--value", type=int, default=0, metavar="CP", help="award games beyond this value")
    add("--value-nodes", type=int, default=0, help="search what no table holds (default: do not)")
    variety = parser.add_argument_group("variety")
    add = variety.add_argument
    add("--temperature", type=temperature, default=1.0, help="of the moves (default: 1)")
    add("--first", type=temperature, metavar="T", help="temperature of the first moves")
    add("--warm", type=int, default=10, metavar="PLIES", help="plies it is for (default: 10)")
    add("--openings", type=Path, metavar="FILE", help="lines or FENs (default: our book)")
    add("--quota", type=int, default=0, help="games an opening, at most")
    add("--crowd", type=int, default=0, help="games that may come through one position")
    add("--blunders", type=share, default=0.0, metavar="P", help="share of random moves")
    add("--positions", type=Path, metavar="FILE", help="write positions of the games, JSON Lines")
    add("--per-game", type=count, default=4, help="positions of a game (default: 4)")
    return parser
