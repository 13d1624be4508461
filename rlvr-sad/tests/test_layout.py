"""Trajectories as the token sequences of a policy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from byte_tokenizer import ByteTokenizer

from rlvr import Message
from rlvr_sad.replay.layout import lay_out
from rlvr_sad.sessions.read import read_record
from rlvr_sad.sessions.record import Raw
from rlvr_sad.tokens import Tokens
from rlvr_sad.trajectory import TYPES, AgentTrajectory

CHAT = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "Q"},
    {
        "role": "assistant",
        "content": "why",
        "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "content": "O"},
    {"role": "assistant", "content": "end"},
    {"role": "user", "content": "thanks"},
]


class Templated(ByteTokenizer):
    """Bytes with a chat template: a role's letter in angle brackets before each message."""

    def render(self, messages: Sequence[Message], *, first: bool = True) -> list[int]:
        text = "".join(f"<{m.role[0]}>{m.content}" for m in messages)
        return self.encode(("^" if first else "") + text + "<a>")

    def closing(self, tokens: Sequence[int]) -> list[int]:
        return list(b";")


class Beginning(ByteTokenizer):
    """Bytes with a token before each text, and no template."""

    def render(self, messages: Sequence[Message], *, first: bool = True) -> list[int]:
        return [7] * first + self.encode("".join(m.content for m in messages))


def trajectory(record: object) -> AgentTrajectory:
    """The trajectory of one record."""
    (one,) = read_record(Raw("0", 1, "json", json.dumps(record).encode()), "f").trajectories
    return one


def parts(tokens: Tokens) -> list[tuple[str, str]]:
    """Runs of one type, with their text."""
    cuts = [0, *(np.flatnonzero(np.diff(tokens.types)) + 1), len(tokens.ids)]
    return [
        (TYPES[tokens.types[a]], bytes(tokens.ids[a:b].tolist()).decode())
        for a, b in pairwise(cuts)
    ]


def test_messages_are_laid_out_as_a_rollout_leaves_them() -> None:
    """Prompts by the template; the model's turns as text, closed by what ends a turn."""
    tokens = lay_out(trajectory({"messages": CHAT}), Templated())

    assert parts(tokens) == [
        ("other", "^<s>S<u>Q<a>"),
        ("reasoning", "why\n"),
        ("action", '{"name": "f", "arguments": {}};'),
        ("other", "<t>O<a>"),
        ("action", "end;"),  # what people say after the last turn is left out
    ]
    assert tokens.mask.tolist() == [t in (1, 2) for t in tokens.types]


def test_a_text_stays_as_it_is() -> None:
    """One tokenisation; the token that ends a text where the model has the last word."""
    text = "Question: q\nThought 1: t\nAction 1: a[x]\nObservation 1: o\nAction 2: Finish[y]"
    tokens = lay_out(trajectory({"id": "0", "text": text}), ByteTokenizer())

    assert bytes(tokens.ids.tolist()) == text.encode() + b"\0"
    assert tokens.mask[-1]
    assert not tokens.mask[: text.index("Thought")].any()


def test_what_comes_after_the_last_learnt_token_is_left_out() -> None:
    """A text that ends in an observation ends before it; no end of text is invented."""
    text = "Thought 1: t\nAction 1: a[x]\nObservation 1: ooo"
    tokens = lay_out(trajectory({"id": "0", "text": text}), ByteTokenizer())

    assert bytes(tokens.ids.tolist()) == b"Thought 1: t\nAction 1: a[x]\n"
    assert not tokens.mask[0]  # nothing predicts it
    assert tokens.mask[1:].all()


def test_a_layout_that_is_asked_for_is_used() -> None:
    """Turns of a text, where the model begins; the text of messages."""
    text = "Thought 1: t\nAction 1: a[x]"
    turns = lay_out(trajectory({"id": "0", "text": text}), Templated(), "turns")
    plain = lay_out(trajectory({"messages": CHAT}), ByteTokenizer(), "text")

    assert bytes(turns.ids.tolist()) == text.encode() + b";"
    assert bytes(plain.ids.tolist()).startswith(b"S\nQ\nwhy\n")


def test_the_token_before_a_text_is_put_there() -> None:
    """Where the tokenizer has one and no template; it is not learnt."""
    tokens = lay_out(trajectory({"id": "0", "text": "Thought: t\nAction: a"}), Beginning())

    assert tokens.ids[0] == 7
    assert tokens.mask[1]


def test_turns_that_follow_each_other_are_one() -> None:
    """The newline between them belongs to the model too: it has to write it."""
    messages = [
        CHAT[1],
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "b"},
    ]
    tokens = lay_out(trajectory({"messages": messages}), Templated())

    assert parts(tokens) == [("other", "^<u>Q<a>"), ("action", "a\nb;")]


def test_an_observation_inside_a_turn_is_not_learnt() -> None:
    """Text that the environment put between the model's words is read, not learnt."""
    said = "<think>t</think><search>s</search><information>i</information><answer>a</answer>"
    messages = [CHAT[1], {"role": "assistant", "content": said}]
    tokens = lay_out(trajectory({"messages": messages}), Templated())

    assert bytes(tokens.ids.tolist()) == f"^<u>Q<a>{said};".encode()
    inside = bytes(tokens.ids[tokens.types == TYPES.index("observation")].tolist())
    assert inside == b"<information>i</information>"
    assert not tokens.mask[tokens.types == TYPES.index("observation")].any()
