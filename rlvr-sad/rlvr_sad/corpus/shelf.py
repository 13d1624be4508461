"""The texts of a corpus, one at a time: from the cache of what was read, or read again."""

from __future__ import annotations

from pathlib import Path

from rlvr.errors import TaskError, explain
from rlvr_sad.corpus.place import Place
from rlvr_sad.reading.cache import TrajectoryCache, unpacked
from rlvr_sad.reading.prepare import prepare
from rlvr_sad.reading.raw import Raw
from rlvr_sad.trajectory import AgentTrajectory


class Shelf:
    """Gives the trajectory that stands at a place; holds none of them."""

    def __init__(self, cache: TrajectoryCache, format_name: str) -> None:
        self._cache = cache
        self._format = format_name

    def trajectory(self, place: Place) -> AgentTrajectory:
        """
        The trajectory.

        Raises:
            TaskError: The cache was emptied, and the file does not hold the record any more.
        """
        data = self._cache.get([place.key]).get(place.key)
        if data is None:
            self._read_again(place.source)
            data = self._cache.get([place.key]).get(place.key)
        if data is None:
            raise TaskError(
                explain(
                    f"record {place.record} of {place.source} (line {place.line}) was to be "
                    "replayed.",
                    "found: the file was changed since the run began",
                    "put the file back, or begin a new run",
                )
            )
        outcome, _ = unpacked(data, Raw(place.record, place.line, "json", b""), place.source)
        return outcome.trajectories[place.index]

    def _read_again(self, source: str) -> None:
        for _ in prepare([Path(source)], cache=self._cache, format_name=self._format):
            pass
