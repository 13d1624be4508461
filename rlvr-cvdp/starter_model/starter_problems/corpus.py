"""
The training text of the starter model: problems answered by authors of different skill.

A model of this text writes like all of them at once, so it solves some problems and fails
others; which hand it imitates decides how often. Reinforcement learning can move that.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from attrs import frozen

from rlvr_cvdp.prompts.starter import brief_prompt

from .build import held_out_keys
from .draft import Draft
from .families import FAMILIES
from .slips import slip_in_meaning, slip_in_names, slip_in_syntax
from .style import CAREFUL, ORDINARY, SLOPPY, Style, render


class Example(NamedTuple):
    """A prompt, an answer to it, and whether the answer was written without a slip."""

    prompt: str
    answer: str
    is_right: bool


@frozen
class Author:
    """Someone who writes answers: how often, in which style, and how often without a slip."""

    style: Style
    share: float
    skill: float


AUTHORS = (
    Author(CAREFUL, share=0.27, skill=0.94),
    Author(ORDINARY, share=0.40, skill=0.30),
    Author(SLOPPY, share=0.33, skill=0.05),
)


def corpus(
    seed: int,
    held_out: frozenset[str] | None = None,
    authors: Sequence[Author] = AUTHORS,
) -> Iterator[Example]:
    """
    Examples without end, the same for the same seed.

    Args:
        seed: Picks the sequence.
        held_out: Keys of behaviours to leave out; by default those of the test problems.
        authors: Who answers.
    """
    rng = random.Random(seed)
    left_out = held_out_keys() if held_out is None else held_out
    families = list(FAMILIES.values())
    while True:
        draft = rng.choice(families)(rng)
        if draft.key not in left_out:
            yield write_example(draft, rng, authors)


def write_example(draft: Draft, rng: random.Random, authors: Sequence[Author] = AUTHORS) -> Example:
    """One author's answer to a draft."""
    (author,) = rng.choices(authors, [author.share for author in authors])
    prompt = brief_prompt(draft.spec, draft.target)
    right = answer = fenced(draft.render(author.style))
    is_right = rng.random() < author.skill
    while not is_right and answer == right:  # two slips may undo each other
        answer = _flawed(draft, author.style, rng)
    return Example(prompt, answer, is_right)


def fenced(text: str) -> str:
    """A module as an answer gives it."""
    return f"```verilog\n{text}```\n"


def _flawed(draft: Draft, style: Style, rng: random.Random) -> str:
    design = draft.design
    kinds = rng.choices(("meaning", "syntax", "names", "fence"), (60, 28, 9, 3))
    if rng.random() < 0.3:
        kinds.append("meaning")
    for kind in kinds:
        if kind == "meaning":
            design = slip_in_meaning(design, rng)
        elif kind == "names":
            design = slip_in_names(design, rng)
    text = render(design, style)
    if "syntax" in kinds:
        text = slip_in_syntax(text, rng)
    if "fence" in kinds:
        return f"```verilog\n{text}"
    return fenced(text)
