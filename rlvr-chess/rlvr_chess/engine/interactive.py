"""The engine for a person at a prompt: PyPI `stockfish`, blocking, with our binary and settings.

Tables and rewards never go through it: its searches do not say which iteration a score is from, and
one process answers one caller.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from stockfish import Stockfish

from rlvr_chess.engine.identity import find_engine


@contextlib.contextmanager
def interactive(
    path: str = "", *, nodes: int = 100_000, elo: int | None = None
) -> Iterator[Stockfish]:
    """
    A `stockfish.Stockfish` to ask by hand; it and its pipes are closed at the end.

        with interactive() as engine:
            engine.set_fen_position(fen)
            print(engine.get_top_moves(3, num_nodes=100_000))

    `path` is the executable ("": where it is usually installed), `nodes` the limit of its searches
    by nodes, `elo` the strength at which it plays (None: full).

    Raises:
        PrerequisiteError: The engine is not installed.
    """
    engine = Stockfish(
        path=str(find_engine(path)), num_nodes=nodes, parameters={"Threads": 1, "Hash": 16}
    )
    try:
        if elo is not None:
            engine.set_elo_rating(elo)
        yield engine
    finally:
        engine.send_quit_command()
        process = engine._stockfish  # it leaves its pipes open
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
