"""A recorded trajectory by reference: its place and its lengths, not its text."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from rlvr import TaskError
from rlvr_sad.sessions.cache import TrajectoryCache
from rlvr_sad.sessions.prepare import prepare
from rlvr_sad.sessions.read import unpacked
from rlvr_sad.sessions.record import Raw
from rlvr_sad.trajectory import AgentTrajectory


@frozen(kw_only=True)
class TrajectoryRef:
    """
    The payload of a problem.

    Attributes:
        key: Of its record in the cache of what was read (sha256).
        index: Its place among the record's trajectories.
        source: The file.
        line: Line at which its record begins (1-based).
        record: Id of the record in the file.
        reasoning: Characters of reasoning.
        action: Characters of action.
        has_prompt: Whether anything stands before the agent's first word.
        read_as: The format that was asked for (`sad.format`); "": found by its looks.
    """

    key: bytes
    index: int
    source: str
    line: int
    record: str
    reasoning: int
    action: int
    has_prompt: bool = True
    read_as: str = ""

    def read(self, cache: TrajectoryCache) -> AgentTrajectory:
        """
        The trajectory, from the cache of what was read; its file is read again where it is gone.

        Raises:
            TaskError: The cache was emptied, and the file does not hold the record any more.
        """
        data = cache.get([self.key]).get(self.key)
        if data is None:
            for _ in prepare([Path(self.source)], cache=cache, format_name=self.read_as):
                pass
            data = cache.get([self.key]).get(self.key)
        if data is None:
            raise TaskError(
                f"record {self.record} of {self.source} (line {self.line}) was to be replayed.",
                "found: the file was changed since the run began",
                "put the file back, or begin a new run",
            )
        outcome, _ = unpacked(data, Raw(self.record, self.line, "json", b""), self.source)
        return outcome.trajectories[self.index]
