"""What a family draws: a specification, the design that answers it and the checks that judge it."""

from __future__ import annotations

import json
from typing import Literal

from attrs import field, frozen
from attrs.validators import in_

from .harness import ClockedChecks, CombChecks, harness_files
from .style import CAREFUL, Design, Style, render

Difficulty = Literal["easy", "medium", "hard"]
Param = int | str | bool


@frozen(kw_only=True)
class Draft:
    """
    One problem before it is written out.

    ``params`` holds what changes behaviour and nothing else: two drafts of a family with equal
    params differ at most in names and wording, and count as the same problem.
    """

    family: str
    params: tuple[tuple[str, Param], ...]
    difficulty: Difficulty = field(validator=in_(("easy", "medium", "hard")))
    spec: str
    design: Design
    checks: CombChecks | ClockedChecks

    @property
    def name(self) -> str:
        """The module's name."""
        return self.design.name

    @property
    def target(self) -> str:
        """The file that an answer has to fill."""
        return f"rtl/{self.name}.sv"

    @property
    def key(self) -> str:
        """Identity of the behaviour: family and parameters, no names."""
        return f"{self.family} {json.dumps(dict(self.params), sort_keys=True)}"

    @property
    def solution(self) -> str:
        """The reference answer, in the careful style."""
        return self.render(CAREFUL)

    def render(self, style: Style) -> str:
        """The right design, written in a given style."""
        return render(self.design, style)

    def harness(self) -> dict[str, str]:
        """Harness files by path, in CVDP's layout."""
        return harness_files(self.name, self.target, self.design.ports, self.checks)
