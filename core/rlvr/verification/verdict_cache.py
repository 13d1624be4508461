"""The verdict store: equal answers are verified once, in all runs.

Keys are made by the reward (`RewardFn.verdict_key`): a sha256 over everything that decides the
verdict. Values are the verdicts as JSON. The default keeps them in one SQLite file, safe to share
between processes.
"""

from __future__ import annotations

import json
from pathlib import Path

from rlvr.types import Outcome
from rlvr.verification.key_value_cache import KeyValueCache, cache_dir
from rlvr.verification.verdict import fault_of_outcome, outcome_from_json, outcome_to_json


class VerdictStore:
    """A store of verdicts; this class stores nothing (`verify.store=off`)."""

    def get(self, key: str) -> Outcome | None:
        """The verdict of a key, marked as cached; None where it is not known."""
        return None

    def put(self, key: str, outcome: Outcome) -> None:
        """Keep a verdict; callers never give failures to verify."""

    def close(self) -> None:
        """Close the store: it is used no more."""


class SqliteStore(VerdictStore):
    """Verdicts in one SQLite file; nothing that is wrong with it ends a run (`KeyValueCache`)."""

    def __init__(self, path: Path) -> None:
        self._file = KeyValueCache(path, "verdict", _read)

    def get(self, key: str) -> Outcome | None:
        return self._file.get(key)

    def put(self, key: str, outcome: Outcome) -> None:
        """Keep a verdict; one that JSON cannot say is used all the same, and logged once."""
        try:
            text = json.dumps(outcome_to_json(outcome), sort_keys=True)
        except (RecursionError, TypeError, ValueError) as error:
            self._file.say("verdict_not_kept", error=repr(error)[:200])
            return
        self._file.put(key, text)

    def close(self) -> None:
        self._file.close()


def _read(text: str) -> Outcome:
    outcome = outcome_from_json(json.loads(text), cached=True)
    if fault := fault_of_outcome(outcome):
        raise ValueError(fault)
    return outcome


def open_store(where: str) -> VerdictStore:
    """The store of `verify.store`: "" is the user's cache, "off" none, else a file."""
    if where == "off":
        return VerdictStore()
    return SqliteStore(Path(where) if where else cache_dir() / "verdicts.sqlite")
