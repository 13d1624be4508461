"""
Whether a change of an assignment may show in the order of processes, which is not hardware's.

With `=` in a clocked process another process sees the new value or the old one, depending on the
simulator; a synthesizer always takes the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rlvr_cvdp.audit.syntax import Walk


def is_raced(
    before: Mapping[str, str], after: Mapping[str, str], others: Iterable[str] = ()
) -> bool:
    """
    Whether `=` and `<=` were exchanged in one of several clocked processes.

    Args:
        before: Files, path to text.
        after: The same files, one of them changed in one place.
        others: Texts of the rest of the design.
    """
    for path, text in before.items():
        changed = after.get(path, "")
        if text != changed and _is_exchanged_in_clocked(text, changed):
            return sum(Walk(other).clocked for other in (*before.values(), *others)) > 1
    return False


def _is_exchanged_in_clocked(text: str, changed: str) -> bool:
    pairs = enumerate(zip(text, changed, strict=False))
    place = next((i for i, (old, new) in pairs if old != new), 0)
    old, new = ("<=", "=") if text.startswith("<=", place) else ("=", "<=")
    is_exchanged = changed == text[:place] + new + text[place + len(old) :]
    return is_exchanged and place in Walk(text).clocked_assigns
