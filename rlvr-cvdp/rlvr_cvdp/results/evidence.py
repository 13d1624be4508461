"""The details of a verdict as JSON values, for people: stage, tests, compiler messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlvr_cvdp.results.messages import ToolMessage, shown_messages
from rlvr_cvdp.results.stage import Stopped
from rlvr_cvdp.results.tests import TestResult, shown_tests


def details(
    stopped: Stopped | None, tests: Sequence[TestResult], messages: Sequence[ToolMessage]
) -> dict[str, Any]:
    """
    Fields of a reward's evidence (docs/results.md), of bounded size.

    Names and messages of tests come from the hidden harness: never show them to the policy.
    """
    return {
        "stage": stopped.stage.value if stopped else "",
        "stage_why": stopped.why if stopped else "",
        **shown_tests(tests),
        **shown_messages(messages),
    }
