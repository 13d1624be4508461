"""Option values that follow from a data set and a model: for plugins that propose them.

A task (`TaskSpec.fit`) and a backend (`BackendSpec.fit`) are asked before a run is built. What they
propose outranks defaults, vetted values of the task and the algorithm; whatever a person typed, in
a file, a variable, a preset or on the command line, outranks what they propose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

from rlvr.types import Message

__all__ = ["ModelFacts", "Proposed", "Situation"]


@frozen(kw_only=True, eq=False)
class ModelFacts:
    """
    Facts of a model that a backend knows without loading its weights (`BackendSpec.facts`).

    Attributes:
        context_length: Tokens of prompt and completion together.
        count: Tokens of a text that the policy writes.
        prompt_tokens: Tokens of a first prompt as the model is given it, chat template included.
        opening: Text that the chat template puts last, where the policy begins.
        template_option: Option that sets variables of the chat template; "": there is none.
        template_variables: Variables that this model's chat template reads.
    """

    context_length: int
    count: Callable[[str], int]
    prompt_tokens: Callable[[Sequence[Message]], int]
    opening: str = ""
    template_option: str = ""
    template_variables: frozenset[str] = frozenset()


@frozen(kw_only=True)
class Situation:
    """
    The values that are known when option values are proposed.

    Attributes:
        model: Model spec, `starter` resolved; "" where the command needs none.
        dataset: Path of the data set; None for the task's embedded one.
        trains: Whether the command trains the model.
        values: Every option as it stands without proposals, by dotted key.
        said: Options that a person gave: a proposal for them has no effect.
        facts: Of the model; None where nobody knows them.
    """

    model: str = ""
    dataset: Path | None = None
    trains: bool = False
    values: Mapping[str, Any] = field(factory=dict)
    said: frozenset[str] = frozenset()
    facts: ModelFacts | None = None

    def options(self, namespace: str) -> dict[str, Any]:
        """The options of one namespace, without its name."""
        start = f"{namespace}."
        return {k.removeprefix(start): v for k, v in self.values.items() if k.startswith(start)}


@frozen
class Proposed:
    """A value, and in a few words why: `rlvr config show` prints them."""

    value: Any
    why: str
