"""
Whether a change of an assignment may show in the order of processes, which is not hardware's.

With `=` in a clocked process another one sees the new value or the old one, as the simulator
pleases; a synthesizer always takes the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rlvr_cvdp.audit.reader import read_structure
from rlvr_cvdp.audit.structure import Process, Structure

_ASSIGNS = frozenset(["=", "<="])


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
            clocked = sum(len(_clocked(read_structure(t))) for t in (*before.values(), *others))
            return clocked > 1
    return False


def _is_exchanged_in_clocked(text: str, changed: str) -> bool:
    old, new = read_structure(text), read_structure(changed)
    if len(old.tokens) != len(new.tokens):
        return False
    places = [i for i, token in enumerate(old.tokens) if token.text != new.tokens[i].text]
    if len(places) != 1 or {old.tokens[places[0]].text, new.tokens[places[0]].text} != _ASSIGNS:
        return False
    clocked = _clocked(old)
    owners = [old.processes[a.process] for a in old.assignments if a.op == places[0]]
    return any(owner in clocked for owner in owners)


def _clocked(structure: Structure) -> list[Process]:
    return [
        process
        for process in structure.processes
        if any(process.first < edge < process.last for edge in structure.edges)
    ]
