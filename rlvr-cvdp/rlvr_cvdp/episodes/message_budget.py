"""Messages that never take more tokens than they may."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Sequence

from attrs import frozen

from rlvr_cvdp.prompts.truncate import estimated_tokens

_LINE = 240
_LONGEST = 64
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]")


@frozen
class Budget:
    """So many tokens, counted with the policy's tokenizer, or estimated where none is known."""

    tokens: int
    count: Callable[[str], int] = estimated_tokens

    def fits(self, text: str) -> bool:
        """Whether the text may be shown whole; what has 64 characters a token is not counted."""
        return not text or (len(text) <= _LONGEST * self.tokens and self.count(text) <= self.tokens)

    def cut(self, text: str) -> str:
        """The text, or its longest beginning that was found to fit."""
        if self.fits(text):
            return text
        return text[: _largest(len(text), lambda size: self.fits(text[:size]))]

    def first(
        self, items: Sequence[str], *, head: str = "", foot: str = "", what: str = "lines"
    ) -> str:
        """
        `head`, as many of the first items as fit, how many more there are, `foot`.

        Where not even one fits, as much of it as does.
        """

        def text(kept: int, part: str = "") -> str:
            rest = len(items) - kept - bool(part)
            return _joined(head, *items[:kept], part, _more(rest, what), foot)

        if not items or self.fits(text(len(items))) or self.fits(text(1)):
            return self._most(len(items), text)
        most = min(len(items[0]), _LONGEST * self.tokens)
        size = _largest(most, lambda size: self.fits(text(0, f"{items[0][:size]}...")))
        return self.cut(text(0, f"{items[0][:size]}..." if size else ""))

    def ends(
        self, items: Sequence[str], *, head: str = "", foot: str = "", what: str = "lines"
    ) -> str:
        """As `first`, but of the items the first and the last are kept."""

        def text(kept: int) -> str:
            last = kept // 2
            end = items[len(items) - last :] if last else ()
            return _joined(head, *items[: kept - last], _more(len(items) - kept, what), *end, foot)

        return self._most(len(items), text)

    def _most(self, total: int, text: Callable[[int], str]) -> str:
        """`text(kept)` with the largest `kept` that fits; cut where even `text(0)` does not."""
        if self.fits(text(total)):
            return text(total)
        return self.cut(text(_largest(max(0, total - 1), lambda kept: self.fits(text(kept)))))


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """A number up to `most` that was found to fit; 0 is not asked about."""
    return bisect.bisect_left(range(1, most + 1), True, key=lambda number: not fits(number))


def short(line: str) -> str:
    """A line of at most 240 characters without control characters."""
    line = _CONTROL.sub("?", line)
    return line if len(line) <= _LINE else line[: _LINE - 3] + "..."


def shares(needs: Sequence[int], room: int) -> list[int]:
    """
    What each of several texts may take: its need, or an equal share of what small ones leave.

    The shares add up to `room` at most.
    """
    given = [0] * len(needs)
    left = max(0, room)
    order = sorted(range(len(needs)), key=lambda place: needs[place])
    for done, place in enumerate(order):
        given[place] = min(needs[place], left // (len(needs) - done))
        left -= given[place]
    return given


def _more(count: int, what: str) -> str:
    return f"[{count} more {what.removesuffix('s') if count == 1 else what}]" if count else ""


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
