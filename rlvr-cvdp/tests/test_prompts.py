"""Prompts: the official order of their parts, and the short one of the starter set."""

from __future__ import annotations

from attrs import evolve

from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.prompts.official import official_prompt, prompt_maker
from rlvr_cvdp.prompts.starter import brief_prompt


def test_one_target(bench):
    """Context, request, and that the answer is saved as it is, in this order."""
    problem = bench.problem(context={"rtl/b.sv": "module b; endmodule"})
    system, user = problem.prompt
    assert (system.role, user.role) == ("system", "user")
    assert "'Specification to RTL Translation'" in system.content
    assert "JSON" not in system.content
    assert user.content == (
        "\nConsider the following content for the file rtl/b.sv:\n```\nmodule b; endmodule\n```"
        "\nProvide me one answer for this request: Write the module inc: y is a plus 1.\n"
        "Please provide your response as plain text without any JSON formatting. "
        "Your response will be saved directly to: rtl/inc.sv.\n"
    )


def test_several_targets(bench):
    """Several files are asked for by name, in the official JSON schema."""
    record = evolve(bench.problem().payload, targets=("rtl/a.sv", "rtl/b.sv"))
    system, user = official_prompt(record)
    assert '{ "code": [{ "<name>" : "<code>"}] }' in system.content
    assert user.content.endswith("Name the files as: ['rtl/a.sv', 'rtl/b.sv'].\n")


def test_no_prompt_shows_the_harness_or_the_solution(bench):
    """Hidden files and references stay hidden."""
    text = " ".join(message.content for message in bench.problem().prompt)
    for hidden in (bench.right, "get_runner", "VERILOG_SOURCES", "cocotb.test"):
        assert hidden not in text


def test_brief(bench):
    """`cvdp.prompt=brief` is the starter model's form on any data set."""
    task = bench.task(prompt="brief")
    (problem,) = task.problems("all")
    (message,) = problem.prompt
    assert message.content == brief_prompt("Write the module inc: y is a plus 1.", "rtl/inc.sv")


def test_the_starter_set_has_the_brief_form_if_no_other_is_asked_for(bench):
    """`cvdp.prompt=auto` is brief there and official elsewhere; `official` is so on each."""
    record = bench.problem().payload
    for asked, is_starter, length in (("auto", True, 1), ("auto", False, 2), ("official", True, 2)):
        record = evolve(record, is_starter=is_starter)
        messages = prompt_maker(CvdpConfig(prompt=asked), record)(record)
        assert len(messages) == length, (asked, is_starter)


def test_an_episode_is_one_turn(bench):
    """The prompt once, then nothing."""
    import asyncio

    task = bench.task()
    (problem,) = task.problems("all")
    episode = task.episode(problem)
    assert episode.prompt() == problem.prompt
    asyncio.run(episode.take("x"))
    assert episode.prompt() is None
