"""`rlvr chess verify-table`: search positions of a table again; nothing may come out otherwise."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import frozen

from rlvr import ConfigError, PrerequisiteError, VerifierError, counted
from rlvr_chess.commands.arguments import add_engine_options, engine_of, for_each, parser_of
from rlvr_chess.engine.identity import EngineIdentity
from rlvr_chess.engine.pool import EngineConfig, EnginePool
from rlvr_chess.questions.records import PolicyPosition
from rlvr_chess.rows import read_rows
from rlvr_chess.rows.row import Row
from rlvr_chess.tables.file import SHIPPED, is_table, read_table
from rlvr_chess.values import ActionValues

_SHOWN = 5


@frozen(kw_only=True)
class Expected:
    """Values by FEN, and who is known to have scored them (None: the file does not say)."""

    values: Mapping[str, ActionValues]
    identity: EngineIdentity | None


def verify_table(argv: list[str]) -> int:
    """Search a sample again; 0 only where every value comes out bit for bit."""
    parser = parser_of(
        "verify-table",
        "Search positions of a table again with this machine's engine: order, scores "
        "and mates must all be equal. Files without a header (fen and moves a line) are searched "
        "with --nodes.",
        "verify-table --sample 80",
        "verify-table table.jsonl.gz --sample 200 --seed 7",
        "verify-table action_values.jsonl --sample 80 --nodes 100000 --json",
    )
    parser.add_argument("file", type=Path, nargs="?", default=SHIPPED, help="default: the shipped")
    parser.add_argument("--sample", type=int, default=80, help="positions; 0: all of them")
    parser.add_argument("--seed", type=int, default=0, help="which positions")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    add_engine_options(parser, "where the file does not say")
    options = parser.parse_args(argv)
    expected = read_expected(options.file)
    nodes = expected.identity.nodes if expected.identity else options.nodes
    engine = engine_of(options, nodes)
    chosen = sorted(expected.values)
    if 0 < options.sample < len(chosen):
        chosen = random.Random(f"verify-table {options.seed}").sample(chosen, options.sample)
    here, differences = asyncio.run(_compared(engine, expected, chosen))
    same = len(chosen) - len(differences)
    if options.json:
        facts = {"same": same, "searched": len(chosen), "positions": len(expected.values)}
        print(json.dumps({**facts, "engine": here.to_json(), "differences": differences}))
    else:
        print(f"{same} of {len(chosen)} positions come out the same, bit for bit ({here.text})")
    if differences:
        shown = [f"{fen}: {what}" for fen, what in list(differences.items())[:_SHOWN]]
        raise VerifierError(
            f"{len(differences)} of {counted(len(chosen), 'position')} of {options.file} come out "
            "otherwise than the file says.",
            "found: " + "\n    ".join(shown),
            "make the table again: rlvr chess build-table",
        )
    return 0


def read_expected(path: Path) -> Expected:
    """
    What a file says: a table, or a data set with values.

    Raises:
        ConfigError: It cannot be read, or holds no values.
    """
    if not path.is_file():
        raise ConfigError(
            f"the chess table {path} cannot be used.", "found: no such file", "name a file"
        )
    if is_table(path):
        table = read_table(path)
        identity: EngineIdentity | None = table.identity
        found = [entry.values for entry in table.entries.values()]
    else:
        payloads = [row.payload for row in read_rows(path) if isinstance(row, Row)]
        identity = None
        found = [p.values for p in payloads if isinstance(p, PolicyPosition) and p.values]
    if not found:
        raise ConfigError(
            f"the values of {path} were to be checked.",
            "found: no position with the values of its moves",
            "name a table (rlvr chess build-table), or lines with fen and moves",
        )
    return Expected(values={values.fen: values for values in found}, identity=identity)


async def _compared(
    engine: EngineConfig, expected: Expected, fens: Sequence[str]
) -> tuple[EngineIdentity, dict[str, str]]:
    """This machine's engine, and what differs by FEN, in the order of `fens`."""
    found: dict[str, str] = {}
    async with EnginePool(engine) as pool:
        theirs, here = expected.identity, pool.identity
        if theirs is not None and theirs != here:
            raise PrerequisiteError(
                "the table cannot be verified with this machine's engine: it is another build.",
                f"found: table by {theirs.text}; here {here.text}; "
                f"different: {theirs.difference(here)}",
                "install the table's engine and name it with --engine PATH, or make your own "
                "table: rlvr chess build-table",
            )

        async def compare(fen: str) -> bool:
            found[fen] = _difference(expected.values[fen], await pool.action_values(fen))
            return True

        await for_each(fens, compare, engine)
        return here, {fen: found[fen] for fen in fens if found[fen]}


def _difference(said: ActionValues, now: ActionValues) -> str:
    """The first difference in words; "" where all moves, their order and scores are equal."""
    if len(said.moves) != len(now.moves):
        return f"{len(said.moves)} moves in the file, {len(now.moves)} now"
    for place, (before, after) in enumerate(zip(said.moves, now.moves, strict=True), start=1):
        if before != after:
            old, new = (" ".join(map(str, move)) for move in (before, after))
            return f"place {place}: {old} in the file, {new} now"
    return ""
