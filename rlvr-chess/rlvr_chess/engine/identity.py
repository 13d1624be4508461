"""Where the engine is, and what decides a score: its build, network, settings and nodes.

Two searches with equal identity and equal six-field FEN give equal scores, bit for bit. So the
sha256 over both is the key under which scores are kept.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import asdict, evolve, field, fields_dict, frozen
from attrs.validators import ge, instance_of, matches_re

from rlvr import PrerequisiteError

OPTIONS: Mapping[str, int] = {"Hash": 16, "MultiPV": 256, "Threads": 1}
"""Settings of every table search. More than one thread would make results differ every time."""
_START_S = 120.0
"""Less than a second, but for a machine that many share."""
_NET = re.compile(rb"^option name EvalFile\w* type string default (\S+)", re.MULTILINE)
_NAME = re.compile(rb"^id name (.+?)\s*$", re.MULTILINE)


def _options(value: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((str(name), int(setting)) for name, setting in dict(value).items()))


@frozen(kw_only=True)
class EngineIdentity:
    """
    Everything besides the position that decides a score.

    Attributes:
        name: As the engine says it: "Stockfish 15.1".
        net: File name of its network (two, with a blank between, from Stockfish 16.1 on).
        binary: sha256 of the executable.
        options: Settings that differ from the engine's defaults or are pinned, sorted.
        nodes: Limit of a search.
    """

    name: str = field(validator=instance_of(str))
    net: str = field(validator=instance_of(str))
    binary: str = field(validator=matches_re(r"[0-9a-f]{64}"))
    options: tuple[tuple[str, int], ...] = field(default=OPTIONS, converter=_options)
    nodes: int = field(validator=[instance_of(int), ge(1)])

    @property
    def text(self) -> str:
        """One line for people and for `ActionValues.engine`."""
        settings = " ".join(f"{name}={value}" for name, value in self.options)
        return f"{self.name} {self.net} {self.binary[:12]} {settings} nodes={self.nodes}"

    def key(self, fen: str) -> str:
        """The key of a position's scores (64 hex digits); `fen` is canonical, six fields."""
        parts = [self.name, self.net, self.binary, [list(o) for o in self.options], self.nodes, fen]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """For the header of a table; `of_json` reads it."""
        return {**asdict(self), "options": dict(self.options)}

    @classmethod
    def of_json(cls, record: Mapping[str, Any]) -> EngineIdentity:
        """The identity of a table's header; KeyError, TypeError or ValueError where it is none."""
        return cls(**{name: record[name] for name in fields_dict(cls)})

    def difference(self, other: EngineIdentity) -> str:
        """The differences, "nodes 100000 against 20000, ..."; "" if there are none."""
        mine, its = (
            {**one.to_json(), "binary": one.binary[:12], "engine": one.name}
            for one in (self, other)
        )
        told = ("engine", "net", "binary", "options", "nodes")
        return ", ".join(f"{k} {mine[k]} against {its[k]}" for k in told if mine[k] != its[k])


def identify(path: Path, nodes: int) -> EngineIdentity:
    """
    The identity of an installed engine: it is started once and asked (kept for later calls).

    Raises:
        PrerequisiteError: The program does not answer as a UCI engine.
    """
    stat = path.stat()
    return evolve(_identified(path, stat.st_mtime_ns, stat.st_size), nodes=nodes)


@functools.lru_cache(maxsize=8)
def _identified(path: Path, mtime_ns: int, size: int) -> EngineIdentity:
    try:
        ran = subprocess.run(
            [str(path)],
            input=b"uci\nquit\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_START_S,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _no_engine(path, f"it does not run: {error}") from error
    name = _NAME.search(ran.stdout)
    if name is None or b"uciok" not in ran.stdout:
        said = ran.stdout.decode(errors="replace").strip()[:200] or "nothing"
        raise _no_engine(path, f"asked `uci` it printed {said!r} (exit status {ran.returncode})")
    nets = [net.decode() for net in _NET.findall(ran.stdout)]
    with path.open("rb") as file:
        binary = hashlib.file_digest(file, "sha256").hexdigest()
    net = " ".join(nets) or "no network"
    return EngineIdentity(name=name[1].decode(), net=net, binary=binary, nodes=1)


def _no_engine(path: Path, found: str) -> PrerequisiteError:
    return PrerequisiteError(
        f"{path} is not a chess engine that speaks UCI.",
        f"found: {found}",
        f"try: {FIX}, or chess.engine=PATH",
    )


FIX = "apt-get install stockfish"
"""The command that installs it on Debian and Ubuntu."""
_FOLDERS = ("/usr/games", "/usr/local/bin", "/opt/homebrew/bin", "/usr/bin")


def find_engine(path: str = "") -> Path:
    """
    The engine's executable: `path` (`chess.engine`), else `stockfish`.

    Looks on PATH and where packages put it: Debian's /usr/games is not on every PATH.

    Raises:
        PrerequisiteError: It is not there, or is no file that may be run.
    """
    found = shutil.which(path or "stockfish")
    if found is None and not path:
        found = shutil.which("stockfish", path=os.pathsep.join(_FOLDERS))
    if found is not None:
        return Path(found).resolve()
    if path:
        is_there = Path(path).exists()
        what = "a file that may not be run" if is_there else "no such file, nor on PATH"
        asked, what = f"the chess engine chess.engine={path} cannot be used.", f"found: {what}"
    else:
        asked = "the chess engine Stockfish is needed, to score a position that no table holds."
        what = f"found: no stockfish on PATH nor in {', '.join(_FOLDERS)}"
    raise PrerequisiteError(asked, what, f"try: {FIX}, or chess.engine=PATH")
