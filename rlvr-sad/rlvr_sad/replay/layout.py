"""
A trajectory as the token sequence that a policy would have made of it.

"turns": as a rollout leaves it behind: prompts rendered as the policy's tokenizer renders them, the
model's turns as plain text, each closed by the token that ends a turn, which is learnt with it.
"text": the trajectory's own text in one tokenisation, with the token that ends a text where the
model has the last word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, takewhile
from typing import Any

import numpy as np
from attrs import evolve, frozen

from rlvr import BackendError, Message
from rlvr_sad.tokens import Tokens, tokenise
from rlvr_sad.trajectory import CODES, TRAINED, AgentTrajectory, Segment

LAYOUTS = ("auto", "turns", "text")
_PROBE = "x"
_ROLES = ("user", "system", "tool", "assistant")
_TEMPLATE = "template"
"""Author of the marks of a template, which stand between turns."""


@frozen(kw_only=True)
class Turn:
    """One message: who says it, and the segments of its text; what an environment put in too."""

    role: str
    segments: tuple[Segment, ...]

    @property
    def is_models(self) -> bool:
        return self.role == "assistant"

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)


def turns_of(trajectory: AgentTrajectory) -> list[Turn]:
    """The messages in order; turns of the model that follow each other are one, by newlines."""
    found: list[Turn] = []
    for is_mark, run in groupby(trajectory.segments, lambda one: one.role == _TEMPLATE):
        if not is_mark:
            _close(found, list(run))
    return found


def has_messages(trajectory: AgentTrajectory) -> bool:
    """Whether it was recorded as messages, with a prompt before the model's first turn."""
    if not any(segment.role == _TEMPLATE for segment in trajectory.segments):
        return False
    first = next(iter(turns_of(trajectory)), None)
    return first is not None and not first.is_models


def part_of(trajectory: AgentTrajectory, segments: Sequence[Segment]) -> AgentTrajectory:
    """A trajectory of some segments alone, their offsets from its beginning."""
    moved, at = [], 0
    for segment in segments:
        size = segment.end - segment.start
        moved.append(evolve(segment, start=at, end=at + size))
        at += size
    return evolve(trajectory, segments=tuple(moved))


def lay_out(trajectory: AgentTrajectory, tokenizer: Any, layout: str = "auto") -> Tokens:
    """
    The tokens of a trajectory, up to the last one that is learnt.

    Args:
        trajectory: What was recorded.
        tokenizer: The policy's; has to know the bytes of its tokens.
        layout: "turns", "text", or "auto": turns where it was recorded as messages with a prompt.

    Raises:
        ConfigError: The tokenizer does not keep texts as they are.
        BackendError: Its template knows no such conversation.
    """
    ids, types = (_turns if _is_in_turns(trajectory, layout) else _text)(trajectory, tokenizer)
    tokens = Tokens.of(ids, types)
    end = int(np.flatnonzero(tokens.mask)[-1]) + 1 if tokens.mask.any() else 0
    return Tokens(ids[:end], types[:end], tokens.mask[:end])


def opening(trajectory: AgentTrajectory, layout: str = "auto") -> list[Message]:
    """The messages before the model's first turn, as they are rendered; [] for a text."""
    if not _is_in_turns(trajectory, layout):
        return []
    return _messages(takewhile(lambda turn: not turn.is_models, turns_of(trajectory)))


def before(trajectory: AgentTrajectory) -> list[Message]:
    """The text before the model's first word as one message; [] if there is none."""
    untaught = takewhile(lambda segment: segment.type not in TRAINED, trajectory.segments)
    text = "".join(segment.text for segment in untaught).strip()
    return [Message(role="user", content=text)] if text else []


def _is_in_turns(trajectory: AgentTrajectory, layout: str) -> bool:
    return layout == "turns" or (layout == "auto" and has_messages(trajectory))


def frame(tokenizer: Any) -> list[int]:
    """How a tokenizer frames prompts and ends turns, which its fingerprint does not cover."""
    user, system, tool, said = (Message(role=role, content=_PROBE) for role in _ROLES)
    following = tokenizer.render((user,), first=False)
    ids = [*_begin(tokenizer), *following]
    for messages, is_first in (
        ((user,), True),
        ((system, user), True),
        ((user, said, user), True),
        ((tool,), False),
    ):
        try:
            ids += [-2, *tokenizer.render(messages, first=is_first)]
        except BackendError:  # a template that knows no such conversation
            ids.append(-1)
    return [*ids, *_ending(tokenizer, following)]


def _turns(trajectory: AgentTrajectory, tokenizer: Any) -> tuple[np.ndarray, np.ndarray]:
    ids: list[int] = []
    types: list[int] = []
    waiting: list[Turn] = []
    for turn in turns_of(trajectory):
        if not turn.is_models:
            waiting.append(turn)
            continue
        messages, waiting = _messages(waiting), []
        if messages:
            prompt = tokenizer.render(messages, first=not ids)
        else:
            prompt = [] if ids else _begin(tokenizer)
        said = tokenise(part_of(trajectory, turn.segments), tokenizer)
        ids += [*prompt, *said.ids.tolist()]
        types += [CODES["other"]] * len(prompt) + said.types.tolist()
        ending = _ending(tokenizer, ids)
        ids += ending
        types += [_last_code(turn.segments)] * len(ending)
    return np.array(ids, np.int32), np.array(types, np.uint8)


def _messages(turns: Iterable[Turn]) -> list[Message]:
    """Turns of others; a user's that follow each other are one: templates want one at a time."""
    messages: list[Message] = []
    for turn in turns:
        if messages and messages[-1].role == turn.role == "user":
            messages[-1] = evolve(messages[-1], content=f"{messages[-1].content}\n{turn.text}")
        else:
            messages.append(Message(role=turn.role, content=turn.text))
    return messages


def _text(trajectory: AgentTrajectory, tokenizer: Any) -> tuple[np.ndarray, np.ndarray]:
    said, begin = tokenise(trajectory, tokenizer), _begin(tokenizer)
    last = next((s.type for s in reversed(trajectory.segments) if s.text.strip()), "other")
    ending = [tokenizer.eos_id] if last in TRAINED else []
    ids = [*begin, *said.ids.tolist(), *ending]
    types = [CODES["other"]] * len(begin) + said.types.tolist() + [CODES[last]] * len(ending)
    return np.array(ids, np.int32), np.array(types, np.uint8)


def _begin(tokenizer: Any) -> list[int]:
    """The token that the tokenizer puts before a text; [] where it puts none, or a template."""
    plain = tokenizer.encode(_PROBE)
    found: list[int] = tokenizer.render((Message(role="user", content=_PROBE),))
    return found[:1] if len(found) == len(plain) + 1 and found[1:] == plain else []


def _ending(tokenizer: Any, ids: Sequence[int]) -> list[int]:
    return tokenizer.closing(ids) or [tokenizer.eos_id]


def _last_code(segments: Sequence[Segment]) -> int:
    return next((CODES[s.type] for s in reversed(segments) if s.type in TRAINED), CODES["other"])


def _close(found: list[Turn], run: list[Segment]) -> None:
    if not any(segment.text.strip() for segment in run):
        return
    is_models = any(segment.type in TRAINED for segment in run)
    role = "assistant" if is_models else run[0].role if run[0].role in _ROLES else "user"
    if role == "assistant" and found and found[-1].is_models:
        last = found[-1].segments[-1]
        gap = evolve(last, text="\n", start=last.end, end=last.end + 1, media=None)
        found[-1] = Turn(role=role, segments=(*found[-1].segments, gap, *run))
    else:
        found.append(Turn(role=role, segments=tuple(run)))
