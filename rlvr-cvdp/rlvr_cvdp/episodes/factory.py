"""Makes episodes of several turns; they share two sandboxes."""

from __future__ import annotations

from functools import cached_property

from rlvr import BuildContext, Episode, Problem
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.episodes.agent import AgentEpisode
from rlvr_cvdp.episodes.debugging import DebuggingEpisode
from rlvr_cvdp.episodes.hidden import HiddenTests
from rlvr_cvdp.episodes.tools import Tools
from rlvr_cvdp.sandbox import Sandbox, open_sandbox
from rlvr_cvdp.verify.reward import CvdpReward, hidden_paths


class EpisodeFactory:
    """
    The tools' sandbox and, apart from it, the one in which hidden tests are asked.

    A slot in which a policy's testbench ran is never one in which a verdict is taken: the tools'
    sandbox makes each slot anew and keeps none.
    """

    def __init__(self, config: CvdpConfig, context: BuildContext) -> None:
        self._config, self._context = config, context
        self._asks = config.mode == "answer" and config.feedback_tests
        self._judge = CvdpReward(config, context)
        self._tests = HiddenTests(self._judge)

    async def __aenter__(self) -> EpisodeFactory:
        """Keep the sandboxes of the hidden tests warm, where those are asked."""
        if self._asks:
            await self._judge.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._asks:
            await self._judge.__aexit__(*error)

    def episode(self, problem: Problem) -> Episode:
        """An episode of `cvdp.mode`."""
        bench = Tools(problem.payload, self._sandbox, self._config)
        if self._config.mode == "agent":
            return AgentEpisode(problem, bench, self._config)
        tests = self._tests if self._asks else None
        return DebuggingEpisode(problem, bench, tests, self._config)

    @cached_property
    def _sandbox(self) -> Sandbox:
        hidden = hidden_paths(self._context.dataset, self._config.references)
        return open_sandbox(self._config, workers=self._context.workers, hidden=hidden)
