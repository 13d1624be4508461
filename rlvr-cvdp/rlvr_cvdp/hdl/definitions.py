"""Definitions in a Verilog text: names, places, whether each is complete, and its instances."""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import select
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path

from attrs import field, frozen

from rlvr_cvdp.hdl.names import KEYWORDS, tokens

_LONGEST = 400_000
_MOST = 1000
_PATIENCE_S = 60.0
_OPENERS = ("module", "macromodule", "interface", "package", "program", "primitive")
_HAS_ANY = re.compile(rf"\b(?:{'|'.join(_OPENERS)})\b")
_NAME = re.compile(r"[A-Za-z_][\w$]*")
_LEADS = {"automatic", "static"}


def _names(values: Iterable[str]) -> frozenset[str]:
    return frozenset(values)


@frozen(kw_only=True)
class Definition:
    """
    A module, interface, package, program or primitive that a text defines.

    `start` and `end` are its place in the text (from its keyword to after its end and label);
    `uses` are the names that it instantiates, imports or takes as interface ports.
    """

    kind: str
    name: str
    start: int
    end: int
    is_complete: bool = True
    has_ports: bool = True
    uses: frozenset[str] = field(default=frozenset(), converter=_names)


@functools.lru_cache(maxsize=512)
def definitions_of(text: str) -> tuple[Definition, ...]:
    """
    The definitions of a text in order, however broken or hostile it is; the first thousand.

    Parsed by slang in a process of its own; by the text's tokens alone where that ends or takes
    too long on this text, and above 400,000 characters.
    """
    if not _HAS_ANY.search(text):
        return ()
    plain_text = text.encode("ascii", "replace").decode()  # JSON would join lone surrogates
    found = _PARSER.definitions(plain_text) if len(text) <= _LONGEST else None
    is_clear = found and all(d.is_complete for d in found)
    plain = () if is_clear else tuple(islice(_by_tokens(text), _MOST))
    if found is None:
        return plain
    names = {definition.name for definition in found}
    # Primitives, and what slang did not reach after an error.
    missed = [d for d in plain if d.name not in names and d.is_complete]
    return tuple(sorted([*found, *missed], key=lambda d: d.start)[:_MOST])


class _Parser:
    """Owns the parsing process; starts it at the first call, and again if it ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def definitions(self, text: str) -> list[Definition] | None:
        """The definitions that slang finds, None if it does not answer."""
        with self._lock:
            line = self._ask(json.dumps(text).encode() + b"\n")
        return [Definition(**record) for record in json.loads(line)] if line else None

    def close(self) -> None:
        """End the process, if this is the process that began it."""
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.communicate()

    def _ask(self, request: bytes) -> bytes:
        """The line that the process answers with, b"" where it ended or takes too long."""
        if self._owner != os.getpid():  # a fork must not share the pipes
            self._process, self._owner = None, os.getpid()
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(Path(__file__).with_name("slang.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = b""
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
            output = self._process.stdout.fileno()
            while not line.endswith(b"\n"):
                ready, _, _ = select.select([output], [], [], _PATIENCE_S)
                part = os.read(output, 1 << 16) if ready else b""
                if not part:
                    raise OSError("the parser ended or waits")
                line += part
        except OSError:
            self.close()
            line = b""
        return line


_PARSER = _Parser()
atexit.register(_PARSER.close)


def _by_tokens(text: str) -> Iterator[Definition]:
    """Definitions by keywords alone; linear in the text."""
    words: list[str] = []
    starts: list[int] = []
    place = 0
    for token in tokens(text):
        if token.kind in ("name", "macro", "system") or token.text in ("#", "(", ")", ";", ","):
            words.append(token.text)
            starts.append(place)
        place += len(token.text)
    place = 0
    while place < len(words):
        word, name = words[place], place + 1
        while name < len(words) and words[name] in _LEADS:
            name += 1
        if word not in _OPENERS or name >= len(words) or not _NAME.fullmatch(words[name]):
            place += 1
            continue
        closer = f"end{word.removeprefix('macro')}"
        ends = (i for i in range(name + 1, len(words)) if words[i] in (closer, word))
        last = next(ends, len(words))
        is_complete = words[last : last + 1] == [closer]
        stop = starts[last] if last < len(words) else len(text)
        yield Definition(
            kind=word,
            name=words[name],
            start=starts[place],
            end=stop + len(closer) * is_complete,
            is_complete=is_complete,
            has_ports=_has_ports(words[name + 1 : last]),
            uses=_uses(words[name + 1 : last]),
        )
        place = last + is_complete


def _has_ports(words: list[str]) -> bool:
    depth = 0
    imports = False
    for place, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        imports = imports or word == "import"
        if word == ";" and depth <= 0 and not imports:
            return False
        imports = imports and word != ";"
        is_list = word == "(" and depth == 1 and (not place or words[place - 1] != "#")
        if is_list:
            return place + 1 < len(words) and words[place + 1] != ")"
    return False


def _uses(words: list[str]) -> frozenset[str]:
    """Names followed by another name or by `#`, as an instance's type is; too many do no harm."""
    return frozenset(
        after if word == "import" else word
        for word, after in pairwise(words)
        if _NAME.fullmatch(word)
        and (word == "import" or word not in KEYWORDS)
        and (after == "#" or (_NAME.fullmatch(after) and after not in KEYWORDS))
    )
