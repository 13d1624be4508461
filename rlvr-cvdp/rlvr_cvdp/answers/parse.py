"""Reads the files of an answer: only those that the policy may write."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from attrs import field, frozen

from rlvr import FrozenMap
from rlvr_cvdp.answers.official import official_files
from rlvr_cvdp.extraction.blocks import pieces_of
from rlvr_cvdp.extraction.choose import Choice
from rlvr_cvdp.extraction.reasoning import without_reasoning
from rlvr_cvdp.extraction.traits import is_code
from rlvr_cvdp.extraction.wanted import Wanted
from rlvr_cvdp.paths import answer_path

_LONE_CR = re.compile(r"\r(?!\n)")
LONGEST = 4_000_000
"""Characters of a text that is read; no honest answer has more."""


@frozen(kw_only=True)
class Answer:
    """
    The files of an answer: declared targets only, path to text.

    `ignored` names what else was offered; it is never written. `why_none` says why there is no
    file at all; `how` says of each file where in the text it stood and why that was taken.
    """

    files: Mapping[str, str] = field(factory=dict, converter=FrozenMap)
    ignored: tuple[str, ...] = ()
    why_none: str = ""
    how: Mapping[str, str] = field(factory=dict, converter=FrozenMap, eq=False)


def from_files(files: Mapping[str, str], targets: Sequence[str]) -> Answer:
    """An answer that was given as files."""
    kept, ignored = {}, []
    for path, text in files.items():
        normal = answer_path(path)
        if normal in targets and isinstance(text, str) and text.strip() and normal is not None:
            if normal not in kept or path == normal:
                kept[normal] = text
        else:
            ignored.append(path)
    why = "" if kept else "it holds none of the files to write"
    return Answer(files=kept, ignored=tuple(ignored), why_none=why)


def from_official_text(text: str, targets: Sequence[str]) -> Answer:
    """
    As the official runner reads it (`answers.official`), declared targets only.

    A text that gives no file is no answer; the official runner would judge the untouched context.
    """
    found = official_files(text, targets) or {}
    kept = {path: body for path, body in found.items() if path in targets}
    ignored = tuple(path for path in found if path not in targets)
    if not any(is_code(path, body) for path, body in kept.items()):
        return Answer(ignored=ignored, why_none="it holds no code")
    return Answer(files=kept, ignored=ignored, how=dict.fromkeys(kept, "as the official runner"))


def from_text(text: str, targets: Sequence[str], wanted: Wanted | None = None) -> Answer:
    """
    An answer that was given as raw model text, in any of the usual shapes.

    The model's reasoning is left out. The rest is taken apart (`extraction.blocks`), and each
    target gets the last whole piece that names it or defines its module (`extraction.choose`);
    `wanted` is what the problem says of those modules, the file's name where it is not given.
    """
    if len(text) > LONGEST:
        return Answer(why_none=f"it has more than {LONGEST:,} characters")
    text = without_reasoning(_LONE_CR.sub("\n", text))
    choice = Choice(pieces_of(text), wanted or Wanted(targets=tuple(targets)), text)
    kept = {p: b.removesuffix("\n") + "\n" for p, b in choice.files.items() if is_code(p, b)}
    why = "" if kept else "it holds no code"
    return Answer(files=kept, ignored=choice.ignored, why_none=why, how=choice.how)
