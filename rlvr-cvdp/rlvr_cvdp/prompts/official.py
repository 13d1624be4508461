"""Prompts in the official construction, and the short one of the starter set."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rlvr import Message
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.prompts.agent import agent_prompt
from rlvr_cvdp.prompts.starter import brief_prompt

_FOLDERS = """\
You are a helpful assistant. Consider that you have a folder structure like this:

    - rtl/*   : RTL code
    - verif/* : files that verify the RTL code
    - docs/*  : documents of the project, such as specifications and plans

When you give a file, name its place in this structure.
"""

_TASKS = {
    "cid002": ("RTL Code Completion", "the completed RTL code"),
    "cid003": ("Specification to RTL Translation", "the RTL code of the specification"),
    "cid004": ("RTL Code Modification", "the modified RTL code"),
    "cid005": (
        "Specification to RTL Translation: Module Instantiation and Component Reuse",
        "the RTL code of the specification, which instantiates and reuses the given modules",
    ),
    "cid006": (
        "RTL Correspondence",
        "a verbatim quote: of the specification where RTL code is given, of the RTL code where a "
        "part of the specification is given",
    ),
    "cid008": (
        "Testbench Correspondence",
        "a verbatim quote: of the test plan where testbench code is given, of the testbench code "
        "where a part of the test plan is given",
    ),
    "cid007": ("RTL Lint Improvement or Power-Performance Optimization", "the improved RTL code"),
    "cid012": ("Test Plan to Testbench Stimulus Generation", "the stimulus of the testbench"),
    "cid013": ("Test Plan to Testbench Checker Generation", "the checker of the testbench"),
    "cid014": ("Test Plan to Assertions Generation", "the assertions of the testbench"),
    "cid016": ("RTL Debugging and Bug Fixing", "the RTL code with the bug fixed"),
}

_SCHEMA = """
Provide the response in one of the following JSON schemas:
{ "code": [{ "<name>" : "<code>"}] }
or
{ "response": "<response>" }
The response should be in JSON format, with double quotes around keys and values, and with quotes \
and newlines within values escaped."""


def official_prompt(problem: CvdpProblem) -> tuple[Message, ...]:
    """
    System and user message, put together as the official runner does for a single turn.

    Context files come first, then the request, then where the answer is saved. Problems of the
    agentic sets are asked the same way (what the runner calls force-copilot).
    """
    title, wanted = _TASKS.get(problem.category, ("RTL", "the RTL code"))
    system = _FOLDERS + (
        f"\nYou are solving a '{title}' problem. To solve this problem correctly, you should only "
        f"respond with {wanted}.\n"
    )
    user = "".join(
        f"\nConsider the following content for the file {path}:\n```\n{text}\n```"
        for path, text in problem.context.items()
    )
    user += f"\nProvide me one answer for this request: {problem.prompt}\n"
    if len(problem.targets) == 1:
        user += (
            "Please provide your response as plain text without any JSON formatting. "
            f"Your response will be saved directly to: {problem.targets[0]}.\n"
        )
    elif problem.is_comprehension:
        system += _SCHEMA
        user += 'Provide your response using the format: { "response": "<your answer here>" }\n'
    else:
        system += _SCHEMA
        user += f"Name the files as: {list(problem.targets)}.\n"
    return Message(role="system", content=system), Message(role="user", content=user)


def _brief(problem: CvdpProblem) -> tuple[Message, ...]:
    """The starter model's prompt."""
    return (Message(role="user", content=brief_prompt(problem.prompt, problem.targets[0])),)


def prompt_maker(
    config: CvdpConfig, record: CvdpProblem
) -> Callable[[CvdpProblem], tuple[Message, ...]]:
    """The function that writes a problem's first prompt, by `cvdp.prompt` and `cvdp.mode`."""
    if record.is_comprehension:
        return official_prompt
    if config.mode == "agent":
        return partial(agent_prompt, turns=config.turns)
    is_brief = config.prompt == "brief" or (config.prompt == "auto" and record.is_starter)
    return _brief if is_brief else official_prompt
