"""Checks of the machine for `rlvr doctor --plugin chess`. The fix is a command."""

from __future__ import annotations

import asyncio

from rlvr import CheckResult, RlvrError
from rlvr_chess.engine.identity import FIX, find_engine, identify
from rlvr_chess.engine.pool import EngineConfig, EnginePool
from rlvr_chess.tables.file import shipped_table

_START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"


def stockfish() -> CheckResult:
    """The engine is there, searches, and is the build that the shipped table was made with."""
    try:
        path = find_engine()
    except RlvrError:
        return CheckResult(ok=False, found="no stockfish (shipped tables need none)", fix=FIX)
    try:
        table = shipped_table()
        here = identify(path, table.identity.nodes if table else 1)
        asyncio.run(_searches(str(path)))
    except RlvrError as error:
        return CheckResult(ok=False, found=f"{path} does not work: {error}", fix=FIX)
    if table is None or table.identity == here:
        return CheckResult(ok=True, found=f"{here.name} ({path})")
    note = f"another build than the shipped table's {table.identity.name}"
    return CheckResult(ok=True, found=f"{here.name} ({path}), {note}")


async def _searches(path: str) -> None:
    async with EnginePool(EngineConfig(path=path, nodes=2000, processes=1)) as pool:
        await pool.action_values(_START)
