"""Debugging over several turns, with the real tools."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any

import pytest
from attrs import evolve

from rlvr import (
    Episode,
    GroupSampler,
    Problem,
    Reward,
    SamplingParams,
    SingleTurn,
    Trajectory,
    sample_groups,
)
from rlvr.testing import ScriptedPolicy
from rlvr.testing.tools import require_tool
from rlvr.training.stages import datum_of
from rlvr_cvdp.episodes.tools import Tools
from rlvr_cvdp.sandbox import open_sandbox
from rlvr_cvdp.sandbox.folders.root import root
from rlvr_cvdp.task import CvdpTask
from rlvr_cvdp.verify.reward import hidden_paths

PORTS = "module inc(input [7:0] a, output [7:0] y);\n"
SYNTAX = f"```verilog\n{PORTS}  assign y = a + ;\nendmodule\n```"
ELABORATION = f"```verilog\n{PORTS}  missing m(.a(a));\nendmodule\n```"
WRONG = f"```verilog\n{PORTS}  assign y = a;\nendmodule\n```"
RIGHT = f"```verilog\n{PORTS}  assign y = a + 8'd1;\nendmodule\n```"
SECRETS = ("test_inc", "small", "large", "assert", "cocotb", "/src", "pytest", "runner", "255")

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator")]


async def play(bench: Any, task: CvdpTask, problem: Problem, texts: Sequence[str]) -> Trajectory:
    """One rollout of a policy that says these texts, one a turn; sandboxes as `bench` has them."""
    if task._has_turns:
        await bench.judged.opened(task._episodes._judge)
    said = iter(texts)
    policy = ScriptedPolicy(lambda _prompt, _seed: next(said), context_length=40_000)
    params = SamplingParams(max_tokens=4000)
    groups = await sample_groups(GroupSampler(), policy, task, [problem], params)
    return groups[0].trajectories[0]


def debug(bench, *texts: str, **options) -> tuple[Trajectory, Reward, list[str]]:
    """The trajectory, its reward, and what the environment said."""
    options = {"timeout_s": 20.0, "turns": len(texts) + 1, **options}
    row = options.pop("row", None)
    task = bench.task(*([row] if row else []), **options)
    (problem,) = task.problems("all")
    trajectory = bench.judged.run(play(bench, task, problem, texts))
    assert trajectory.finish == "stop", trajectory.error
    reward = bench.judged(bench.reward(**options), problem, trajectory)
    said = [segment.text for segment in trajectory.segments if segment.author == "env"]
    return trajectory, reward, said


def test_a_syntax_error_is_fixed_at_the_second_turn(bench):
    """The compiler's message with its place is shown; the second answer is right."""
    trajectory, reward, said = debug(bench, SYNTAX, RIGHT, discount=0.9)
    (message,) = said
    assert "rtl/inc.sv:2: error: syntax error\n    assign y = a + ;" in message
    assert "Turn 2 of 3" in message
    assert trajectory.notes == {
        "turns": [{"stage": "format"}, {"stage": "tests"}],
        "ended": "right",
    }
    assert (reward.value, reward.score01) == (pytest.approx(0.9), 1.0)
    assert reward.components["turn_1"] == 0.1
    assert reward.components["turn_2"] == 1.0
    assert reward.evidence["turns"] == 2


def test_turns_enter_the_key_of_a_verdict(bench):
    """The same files after another number of turns, or with another discount, are judged anew."""
    problem = bench.problem()
    single = Trajectory.from_text(problem.id, RIGHT)
    files = {"rtl/inc.sv": bench.right}
    own = single.segments
    two = evolve(single, segments=own * 2, files=files, notes={"turns": [{"stage": "none"}] * 2})
    three = evolve(two, segments=own * 3, notes={"turns": [{"stage": "none"}] * 3})
    keys = [
        bench.reward(turns=3, discount=discount).verdict_key(problem, trajectory)
        for discount in (1.0, 0.9)
        for trajectory in (single, two, three)
    ]
    assert keys[0] == keys[3], "a single turn is not discounted"
    assert len(set(keys)) == 5


def test_the_tools_words_are_never_trained_on(bench):
    """In the datum of a real debugging trajectory the mask is true on the two answers only."""
    trajectory, _, _ = debug(bench, SYNTAX, RIGHT)
    authors = [segment.author for segment in trajectory.segments]
    assert authors == ["prompt", "policy", "env", "policy"]
    datum = datum_of(trajectory, 1.0)
    place = 0
    for segment in trajectory.segments:
        part = slice(place, place + len(segment.tokens))
        is_own = segment.author == "policy"
        assert datum.mask[part].all() == is_own
        assert datum.mask[part].any() == is_own
        assert datum.advantages[part].any() == is_own
        assert datum.weights[part].any() == is_own
        assert datum.logprobs[part].any() == is_own
        place = part.stop
    assert place == len(datum.tokens)


def test_of_the_hidden_tests_one_bit_is_shown(bench):
    """A wrong answer that compiles hears that they fail: no name, value, message or path."""
    _, reward, said = debug(bench, WRONG, ELABORATION, RIGHT)
    assert said[0].startswith("The files compile. The hidden tests fail.\n")
    assert "Unknown module type: missing" in said[1]
    assert "The hidden tests" not in said[1]
    for message in said:
        assert not [secret for secret in SECRETS if secret in message]
    assert reward.score01 == 1.0
    assert [reward.components[f"turn_{k}"] for k in (1, 2, 3)] == [0.5, 0.3, 1.0]


def test_without_the_bit_it_ends_when_no_tool_complains(bench):
    """With cvdp.feedback_tests=false a wrong answer that compiles ends the episode."""
    trajectory, reward, said = debug(bench, SYNTAX, WRONG, feedback_tests=False)
    assert len(said) == 1
    assert "hidden" not in said[0]
    assert trajectory.notes["ended"] == "clean"
    assert reward.value == 0.5


def test_warnings_alone_are_no_complaint_of_the_compiler(bench):
    """
    An implicit wire compiles, which ends an episode without the bit.

    Where Verilator is asked too, its warnings count.
    """
    implicit = f"```verilog\n{PORTS}  assign q = a[0];\n  assign y = a + 8'd1;\nendmodule\n```"
    assert debug(bench, implicit, RIGHT, feedback_tests=False)[2] == []
    require_tool("verilator")
    _, _, said = debug(bench, implicit, RIGHT, feedback_tests=False, feedback_lint=True)
    assert "iverilog: 1 warning\nverilator: " in said[0]


def test_the_last_turn_runs_no_tool(bench, monkeypatch):
    """After the last turn nobody reads what the tools say; the reward alone judges."""

    async def never(*_args, **_options):
        raise AssertionError("a tool was run")

    monkeypatch.setattr(Tools, "compile", never)
    trajectory, reward, said = debug(bench, "I think.", RIGHT, turns=2)
    assert said[0].startswith("Your last message holds no code for a file that was asked for")
    assert trajectory.notes == {"turns": [{"stage": "none"}, {"stage": ""}], "ended": "turns"}
    assert reward.score01 == 1.0


def test_no_code_in_any_turn_is_no_answer(bench):
    """Two turns of words are worth nothing, and the reward says why."""
    trajectory, reward, _ = debug(bench, "I think.", "Still thinking.", turns=2)
    assert trajectory.files is None
    assert reward.value == 0.0
    assert reward.evidence["why"] == "it holds no code"


def test_files_of_earlier_turns_stay(bench):
    """A turn may rewrite one of two files; the state is the newest text of each."""
    row = bench.row(
        targets={"rtl/inc.sv": "", "rtl/half.sv": ""},
        harness={"src/.env": bench.env.replace("inc.sv\n", "inc.sv /code/rtl/half.sv\n")},
    )
    top = "module inc(input [7:0] a, output [7:0] y);\n  half h(a, y);\nendmodule\n"
    half = "module half(input [7:0] a, output [7:0] y);\n  assign y = a{};\nendmodule\n"
    first = json.dumps({"code": [{"rtl/inc.sv": top}, {"rtl/half.sv": half.format(" +")}]})
    second = json.dumps({"code": [{"rtl/half.sv": half.format(" + 8'd1")}]})
    trajectory, reward, said = debug(bench, first, second, row=row)
    assert "rtl/half.sv:2" in said[0]
    assert trajectory.files == {"rtl/inc.sv": top, "rtl/half.sv": half.format(" + 8'd1")}
    assert reward.score01 == 1.0


def test_verilator_may_speak_too(bench):
    """With cvdp.feedback_lint its warnings stand beside the compiler's messages."""
    require_tool("verilator")
    narrow = RIGHT.replace("8'd1", "4'd1")
    _, _, said = debug(
        bench, narrow.replace("y = a", "y = 1 ? 8'd0 : a"), RIGHT, feedback_lint=True
    )
    assert "verilator: " in said[0]
    assert "warning WIDTH" in said[0]


def test_messages_keep_to_their_budget(bench):
    """A hundred errors: the first are shown, the rest counted, in tokens of the policy."""
    many = PORTS + "".join(f"  nope u{n}(.a(a));\n" for n in range(100)) + "endmodule\n"
    trajectory, _, _ = debug(bench, f"```verilog\n{many}```", RIGHT, feedback_tokens=400)
    (message,) = [s for s in trajectory.segments if s.author == "env"]
    assert len(message.tokens) <= 400
    assert message.text.startswith("iverilog: 100 errors\nrtl/inc.sv:2: ")
    assert "more messages]" in message.text


def test_a_single_turn_is_as_it_was(bench):
    """By default, and for problems that are answered in words, nothing is opened or run."""
    task = bench.task()
    (problem,) = task.problems("all")
    assert isinstance(task.episode(problem), SingleTurn)
    trajectory = bench.judged.run(play(bench, task, problem, [RIGHT]))
    assert trajectory.files is None
    assert not trajectory.notes


def test_the_harness_is_not_where_tools_run(bench):
    """Neither the compiler nor a simulation finds it, nor the data set, nor this package."""
    problem = bench.problem(context={"rtl/x.sv": "module x; endmodule\n"})
    sandbox = open_sandbox(bench.task()._config, hidden=hidden_paths(bench.folder / "rows.jsonl"))
    tools = Tools(problem.payload, sandbox, bench.task(timeout_s=20.0)._config)
    places = [
        "/src/test_inc.py", "/code/src/test_inc.py", "../src/test_runner.py", "/src/.env",
        "/code/docker-compose.yml", str(bench.folder / "rows.jsonl"),
        str(hidden_paths(None)[0] / "starter" / "problems.jsonl"),
    ]  # fmt: skip
    opened = "\n".join(f'f = $fopen("{place}", "r"); $display("%0d", f);' for place in places)
    tb = f'module tb; integer f; initial begin\n{opened}\n$display("done"); end endmodule\n'
    ran = asyncio.run(tools.simulate({"verif/tb.sv": tb}, ["verif/tb.sv"]))
    assert ran.ok, ran.output
    lines = [line for line in ran.output.splitlines() if "WARNING" not in line.upper()]
    assert lines == [*["0"] * len(places), "done"], ran.output
    for place in places:
        text = f'`include "{place}"\nmodule inc; endmodule\n'
        ran = asyncio.run(tools.compile({"rtl/inc.sv": text}, ["rtl/inc.sv"]))
        assert not ran.ok
        assert "not found" in ran.output, ran.output


def folders() -> list[str]:
    """Work folders of this process that are in use."""
    return [str(p) for p in root().glob(f"{os.getpid()}-*/*") if not p.name.startswith("inside")]


@pytest.mark.parametrize("turn", ["compile", "tests"])
def test_an_interrupted_turn_leaves_no_slot(bench, turn):
    """Cancelled while a tool or the hidden tests run: folder and processes are gone."""
    pipe = "/proc/self/fd/1"
    slow = {
        "compile": (f'`include "{pipe}"\n{PORTS}endmodule\n', {"feedback_tests": False}),
        "tests": (f"{PORTS}  initial forever begin end\nendmodule\n", {}),
    }
    text, options = slow[turn]
    task = bench.task(turns=3, timeout_s=60.0, **options)
    (problem,) = task.problems("all")
    before = folders()

    async def interrupted() -> None:
        async with task:
            episode: Episode = task.episode(problem)
            taking = asyncio.create_task(episode.take(f"```verilog\n{text}```"))
            for _ in range(200):
                await asyncio.sleep(0.05)
                if set(folders()) - set(before):
                    break
            await asyncio.sleep(0.3)
            assert not taking.done(), taking
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking

    asyncio.run(interrupted())
    assert folders() == before
