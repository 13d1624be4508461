"""What a run holds of a recorded trajectory: where it stands and how long it is, not its text."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class Place:
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
    """

    key: bytes
    index: int
    source: str
    line: int
    record: str
    reasoning: int
    action: int
    has_prompt: bool = True
