"""The debugging episode: an answer, what the tools say about it, another answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlvr import Episode, EpisodeResult, Message, Problem, Tokenizer, Trajectory
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.episodes.diagnostics import messages_of, shown, tally
from rlvr_cvdp.episodes.hidden import HiddenTests
from rlvr_cvdp.episodes.message_budget import Budget
from rlvr_cvdp.episodes.tools import Tools
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.verify.reward import read_answer

_NO_CODE = "Your last message holds no code for a file that was asked for: {targets}."
_FAIL = "The files compile. The hidden tests fail."
_AGAIN = (
    "Turn {next} of {turns}: answer again, with the whole text of each file that you change. "
    "Files that you leave out stay as they are."
)


class DebuggingEpisode(Episode):
    """
    Up to `cvdp.turns` answers, with the tools' messages between them.

    The state is the problem's files with the answers so far written over them. It ends when the
    hidden tests pass (`cvdp.feedback_tests`), when they are not asked and no tool complains, or
    with the last turn, after which no tool is run: the reward is the judge of that.
    """

    def __init__(
        self, problem: Problem, bench: Tools, tests: HiddenTests | None, config: CvdpConfig
    ) -> None:
        record: CvdpProblem = problem.payload
        self._problem, self._record = problem, record
        self._bench, self._tests, self._config = bench, tests, config
        self._budget = Budget(config.feedback_tokens)
        self._given = record.visible
        self._answered: dict[str, str] = {}
        self._message: Sequence[Message] | None = problem.prompt
        self._turns: list[dict[str, Any]] = []
        self._ended = ""

    def start(self, tokenizer: Tokenizer) -> None:
        """Count the budget of messages in tokens of this tokenizer."""
        self._budget = Budget(self._budget.tokens, lambda text: len(tokenizer.encode(text)))

    def prompt(self) -> Sequence[Message] | None:
        """The problem's prompt; then what the tools say; None when the episode has ended."""
        return self._message

    async def take(self, completion: str) -> None:
        """Write the answer's files over the state and ask the tools."""
        written = Trajectory.from_text(self._problem.id, completion)
        answer = read_answer(self._record, written, self._config.parsing)
        self._answered.update(answer.files)
        if len(self._turns) + 1 >= self._config.turns:
            self._note("", ended="turns")
        elif not answer.files:
            self._note("none")
            self._say([], _NO_CODE.format(targets=", ".join(self._record.targets)))
        else:
            await self._ask_the_tools()
        if self._ended:
            self._message = None

    def result(self) -> EpisodeResult:
        """The files of all answers, later over earlier; each turn's stage, and why it ended."""
        notes = {"turns": list(self._turns), "ended": self._ended}
        return EpisodeResult(files=dict(self._answered) or None, notes=notes)

    async def _ask_the_tools(self) -> None:
        state = {**self._given, **self._answered}
        if self._tests and await self._tests.accept(self._problem, dict(self._answered)):
            self._note("tests", ended="right")
            return
        targets = self._record.targets
        compiled = await self._bench.compile(state, targets)
        runs = {"iverilog": compiled}
        if self._config.feedback_lint:
            runs["verilator"] = await self._bench.lint(state, targets)
        found = {tool: messages_of(ran) for tool, ran in runs.items()}
        stage = "compilation" if compiled.ok else "syntax" if compiled.parses else "format"
        is_clean = compiled.ok and not found.get("verilator")
        if is_clean and self._tests is None:
            self._note(stage, ended="clean")
            return
        self._note(stage)
        heads = [f"{tool}: {tally(said)}" for tool, said in found.items() if said]
        head = "\n".join([*heads, *([_FAIL] if compiled.ok and self._tests else [])])
        self._say(shown([m for said in found.values() for m in said], state), head)

    def _note(self, stage: str, *, ended: str = "") -> None:
        self._turns.append({"stage": stage})
        self._ended = ended

    def _say(self, items: Sequence[str], head: str) -> None:
        foot = _AGAIN.format(next=len(self._turns) + 1, turns=self._config.turns)
        text = self._budget.first(items, head=head, foot=foot, what="messages")
        self._message = (Message(role="user", content=text),)
