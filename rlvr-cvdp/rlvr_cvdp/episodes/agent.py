"""The agent episode: the policy lists, reads and edits files, runs tools and submits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from rlvr import Episode, EpisodeResult, Message, Problem, Tokenizer
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.episodes.actions import MAX_ACTIONS, MAX_RUNS, VERBS, Action, actions_of
from rlvr_cvdp.episodes.diagnostics import cleaned, messages_of, shown, tally
from rlvr_cvdp.episodes.message_budget import Budget, shares
from rlvr_cvdp.episodes.tools import Ran, Tools
from rlvr_cvdp.episodes.work_tree import RefusedError, WorkTree, checked_path
from rlvr_cvdp.problem import CvdpProblem

TOOLS = ("compile", "lint", "stat", "simulate")
_NOTHING = (
    "No action was found in your last message. An action is a fenced block whose first line names "
    f"it ({', '.join(VERBS)}), for example:\n```run compile\n```"
)


@frozen(kw_only=True)
class _Result:
    """What an action answered: lines to show, of which the first ones matter, or both ends."""

    lines: Sequence[str]
    head: str = ""
    has_ends: bool = False
    is_error: bool = False

    def shown(self, action: Action, budget: Budget) -> str:
        """The action and what it answered, as far as the budget goes."""
        head = f"> {action.title}\n{self.head}".strip()
        return (budget.ends if self.has_ends else budget.first)(self.lines, head=head)


class AgentEpisode(Episode):
    """
    Up to `cvdp.turns` turns of actions on the problem's files.

    The tree holds the given files only. The answer is what of the target files was changed when
    the policy submits, or when the turns are used up; the reward judges it on a fresh tree.
    """

    def __init__(self, problem: Problem, bench: Tools, config: CvdpConfig) -> None:
        record: CvdpProblem = problem.payload
        self._record, self._bench, self._config = record, bench, config
        self._tree = WorkTree(record.visible)
        self._budget = Budget(config.feedback_tokens)
        self._message: Sequence[Message] | None = problem.prompt
        self._turns: list[dict[str, Any]] = []
        self._compiled: Mapping[str, str] | None = None
        self._ended = ""

    def start(self, tokenizer: Tokenizer) -> None:
        """Count the budget of messages in tokens of this tokenizer."""
        self._budget = Budget(self._budget.tokens, lambda text: len(tokenizer.encode(text)))

    def prompt(self) -> Sequence[Message] | None:
        """The request and the actions; then what the actions answered; None at the end."""
        return self._message

    async def take(self, completion: str) -> None:
        """Do the actions of a turn, in order."""
        actions = actions_of(completion)
        is_last = len(self._turns) + 1 >= self._config.turns
        results: list[tuple[Action, _Result]] = []
        for number, action in enumerate(actions):
            has_failed = any(result.is_error for _, result in results)
            if action.verb == "submit" and not action.error and not has_failed:
                self._ended = "submitted"
                break
            if is_last and action.verb not in ("write", "replace"):
                continue  # nobody reads its answer
            if number >= MAX_ACTIONS:
                result = _refused(f"at most {MAX_ACTIONS} actions a turn are done")
                results.append((action, result))
                break
            runs = sum(done.verb == "run" for done, _ in results)
            if action.verb == "run" and runs >= MAX_RUNS:
                result = _refused(f"at most {MAX_RUNS} tools a turn are run")
            else:
                result = await self._do(action)
            results.append((action, result))
        if is_last and not self._ended:
            self._ended = "turns"
        self._turns.append({"stage": self._stage(), "actions": [a.title for a in actions[:32]]})
        self._message = None if self._ended else self._answer(results)

    def result(self) -> EpisodeResult:
        """The changed target files; the stage and actions of each turn, and why it ended."""
        notes = {"turns": list(self._turns), "ended": self._ended}
        return EpisodeResult(files=self._changed(), notes=notes)

    def _changed(self) -> Mapping[str, str]:
        """The target files that are not as they were given."""
        written = self._tree.written()
        return {path: written[path] for path in self._record.targets if path in written}

    async def _do(self, action: Action) -> _Result:
        if action.error:
            return _refused(action.error)
        try:
            if action.verb == "list":
                return _Result(lines=self._tree.listing())
            if action.verb == "read":
                return _Result(lines=self._tree.read(action.words[0], *action.lines))
            if action.verb == "write":
                self._tree.write(action.words[0], action.body)
                return _Result(lines=["written"])
            if action.verb == "replace":
                self._tree.replace(action.words[0], action.body, action.new)
                return _Result(lines=["replaced"])
            if action.verb == "submit":
                return _refused("not submitted: an action before it failed")
            return await self._run(action.words[0].lower(), action.words[1:])
        except RefusedError as error:
            return _refused(str(error))

    async def _run(self, tool: str, words: Sequence[str]) -> _Result:
        files = self._tree.files
        paths = [checked_path(word, to_write=False) for word in words]
        for path in paths:
            if path not in files:
                raise RefusedError(f"there is no file {path}")
        roots = paths or self._record.targets
        if tool == "simulate":
            if not paths:
                raise RefusedError("name your testbench: run simulate verif/tb.sv")
            ran = await self._bench.simulate(files, paths)
            lines = cleaned(ran.output) or ["it printed nothing"]
            return _Result(lines=lines, head=_end(ran), has_ends=True)
        if tool == "stat":
            ran = await self._bench.stat(files, roots)
            return _Result(lines=cleaned(ran.output), head=_end(ran), has_ends=True)
        if tool not in ("compile", "lint"):
            raise RefusedError(f"there is no tool {tool[:20]!r}: {', '.join(TOOLS)}")
        if tool == "lint":
            ran = await self._bench.lint(files, roots)
        else:
            ran = await self._bench.compile(files, roots)
            is_whole = set(roots) >= set(self._record.targets)
            self._compiled = files if ran.ok and is_whole else None
        found = messages_of(ran)
        return _Result(lines=shown(found, files), head=f"{_end(ran)} {tally(found)}".strip())

    def _stage(self) -> str:
        if not self._changed():
            return "none"
        return "compilation" if self._compiled == self._tree.files else "format"

    def _answer(self, results: Sequence[tuple[Action, _Result]]) -> Sequence[Message]:
        left = self._config.turns - len(self._turns)
        foot = f"[{left} turn{'s' * (left != 1)} left]"
        texts = [result.shown(action, self._budget) for action, result in results]
        room = self._budget.tokens - self._budget.count(f"\n{foot}")
        sizes = shares([self._budget.count(text) + 1 for text in texts], room)
        for place, (action, result) in enumerate(results):
            budget = Budget(max(0, sizes[place] - 1), self._budget.count)
            texts[place] = result.shown(action, budget)
        text = "\n".join([text for text in texts if text] or [_NOTHING])
        text = self._budget.cut(f"{text}\n{foot}")
        return (Message(role="user", content=text),)


def _refused(why: str) -> _Result:
    return _Result(lines=[f"error: {why}"], is_error=True)


def _end(ran: Ran) -> str:
    return "ok" if ran.ok else "failed"
