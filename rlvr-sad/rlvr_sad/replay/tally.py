"""Counts trajectories that replay left out or cut, each once, and logs them."""

from __future__ import annotations

import structlog
from attrs import define, field

log = structlog.get_logger(__name__)


@define
class Tally:
    """
    Counts since the run began.

    Attributes:
        windowed: Trajectories that came as several windows.
        cut: Those that lost something.
        dropped: Those that were left out.
        lost: Tokens to learn that were lost.
        kept: Tokens to learn that were not.
        unseen: Pictures, films and sounds that were not shown.
        reasons: Why a trajectory was refused, by its problem's id.
    """

    windowed: int = 0
    cut: int = 0
    dropped: int = 0
    lost: int = 0
    kept: int = 0
    unseen: int = 0
    reasons: dict[str, str] = field(factory=dict)
    _seen: set[str] = field(factory=set)
    _told: tuple[int, int, int] = (0, 0, 0)

    @property
    def trajectories(self) -> int:
        """How many were replayed, each once."""
        return len(self._seen)

    def count(self, name: str, *, windows: int, wanted: int, kept: int, unseen: int = 0) -> None:
        """One trajectory: windows, how many of its tokens to learn are in them, what is unseen."""
        if name in self._seen:
            return
        self._seen.add(name)
        self.windowed += windows > 1
        self.cut += 0 < kept < wanted
        self.dropped += kept == 0
        self.kept += kept
        self.lost += wanted - kept
        if unseen and not self.unseen:
            log.warning(
                "media_not_shown",
                first=name,
                why="the model reads text alone (or it is no picture): its place is text",
            )
        self.unseen += unseen

    def refuse(self, name: str, reason: str) -> None:
        """One trajectory that cannot be laid out."""
        if name not in self.reasons:
            self.reasons[name] = reason
            log.warning("trajectory_refused", problem=name, why=reason)
        self.count(name, windows=0, wanted=0, kept=0)

    def tell(self, limit: int, *, is_over: bool = False) -> None:
        """Log what changed; before the run is over only if twice as many were cut or left out."""
        now = self.windowed, self.cut, self.dropped
        if now == self._told or (not is_over and sum(now) < max(1, 2 * sum(self._told))):
            return
        self._told = now
        log.warning(
            "long_trajectories",
            replayed=self.trajectories,
            windowed=self.windowed,
            cut=self.cut,
            dropped=self.dropped,
            tokens_learnt=self.kept,
            tokens_lost=self.lost,
            reads=limit,
        )
