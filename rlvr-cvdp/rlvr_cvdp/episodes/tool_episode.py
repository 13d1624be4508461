"""What the episodes of several turns share: messages within a budget, and notes of each turn."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from rlvr import Episode, EpisodeResult, Message, Problem, Tokenizer
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.episodes.message_budget import Budget
from rlvr_cvdp.episodes.tools import Tools
from rlvr_cvdp.problem import CvdpProblem


class ToolEpisode(Episode):
    """Turns on one problem, with what the tools answer between them."""

    def __init__(self, problem: Problem, bench: Tools, config: CvdpConfig) -> None:
        self._record: CvdpProblem = problem.payload
        self._bench, self._config = bench, config
        self._budget = Budget(config.feedback_tokens)
        self._message: Sequence[Message] | None = problem.prompt
        self._turns: list[dict[str, Any]] = []
        self._ended = ""

    def start(self, tokenizer: Tokenizer) -> None:
        """Count the budget of messages in tokens of this tokenizer."""
        self._budget = Budget(self._budget.tokens, lambda text: len(tokenizer.encode(text)))

    def prompt(self) -> Sequence[Message] | None:
        """The problem's prompt; then what the tools answered; None when the episode has ended."""
        return self._message

    def result(self) -> EpisodeResult:
        """The answer's files; the notes of each turn, and why the episode ended."""
        notes = {"turns": list(self._turns), "ended": self._ended}
        return EpisodeResult(files=self._files(), notes=notes)

    @abc.abstractmethod
    def _files(self) -> dict[str, str] | None:
        """The answer's files; None for no answer."""
