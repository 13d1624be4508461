"""The agent that works on files, with the real tools."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from rlvr import BuildContext, GroupSampler, Reward, SamplingParams, Trajectory, sample_groups
from rlvr.testing import ScriptedPolicy, TaskContract
from rlvr.testing.tools import require_tool, shared_data
from rlvr.training.stages import datum_of
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.task import CvdpTask
from rlvr_cvdp.verify.reward import CvdpReward

PORTS = "module inc(input [7:0] a, output [7:0] y);\n"
RIGHT = f"{PORTS}  assign y = a + 8'd1;\nendmodule\n"
WRONG = f"{PORTS}  assign y = a;\nendmodule\n"
TB = """\
module tb;
  reg [7:0] a = 41;
  wire [7:0] y;
  inc dut(a, y);
  initial begin #1 $display("y=%0d", y); $finish; end
endmodule
"""
SECRETS = ("test_inc", "small", "large", "assert", "cocotb", "test_runner", "docker-compose")

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator")]


def write(path: str, text: str) -> str:
    return f"```write {path}\n{text}```\n"


def act(bench, *texts: str, **options) -> tuple[Trajectory, Reward, list[str]]:
    """The trajectory of an agent that says these texts, its reward, and what it was answered."""
    row = options.pop("row", None) or bench.row(context={"docs/spec.md": "y is a plus 1\n"})
    options = {"timeout_s": 20.0, "turns": 8, "mode": "agent", **options}
    task = bench.task(row, **options)
    (problem,) = task.problems("all")
    reward = bench.reward(**options)
    trajectory = asyncio.run(_played(task, problem, texts))
    assert trajectory.finish == "stop", trajectory.error
    outcome = bench.judged(reward, problem, trajectory)
    said = [segment.text for segment in trajectory.segments if segment.author == "env"]
    return trajectory, outcome, said


async def _played(task, problem, texts: Sequence[str]) -> Trajectory:
    said = iter(texts)
    policy = ScriptedPolicy(lambda _prompt, _seed: next(said), context_length=60_000)
    async with task:
        params = SamplingParams(max_tokens=4000)
        groups = await sample_groups(GroupSampler(), policy, task, [problem], params)
    return groups[0].trajectories[0]


def test_list_read_write_compile_simulate_submit(bench):
    """The whole way of an agent, from an empty file to reward 1."""
    trajectory, reward, said = act(
        bench,
        "I look.\n```list\n```\n```read docs/spec.md\n```",
        write("rtl/inc.sv", RIGHT.replace("8'd1;", "8'd1")) + "```run compile\n```",
        "```replace rtl/inc.sv\n<<<<<<<\n8'd1\n=======\n8'd1;\n>>>>>>>\n```\n```run compile\n```",
        write("verif/tb.sv", TB) + "```run simulate verif/tb.sv\n```",
        "```submit\n```",
        discount=0.9,
    )
    assert said[0] == (
        "> list\ndocs/spec.md (1 lines)\n> read docs/spec.md\n1: y is a plus 1\n[7 turns left]"
    )
    assert "> run compile\nfailed 1 error\nrtl/inc.sv:3: error: syntax error" in said[1]
    assert "> replace rtl/inc.sv\nreplaced\n> run compile\nok\n" in said[2]
    assert "> run simulate verif/tb.sv\nok\ny=42\n" in said[3]
    assert trajectory.files == {"rtl/inc.sv": RIGHT}
    assert trajectory.notes["ended"] == "submitted"
    stages = [turn["stage"] for turn in trajectory.notes["turns"]]
    assert stages == ["none", "format", "compilation", "format", "format"]
    assert trajectory.notes["turns"][0]["actions"] == ["list", "read docs/spec.md"]
    assert (reward.value, reward.score01) == (pytest.approx(0.9**4), 1.0)
    assert reward.components["turn_3"] == 0.5
    mask = datum_of(trajectory).mask
    own = sum(len(s.tokens) for s in trajectory.segments if s.author == "policy")
    assert mask.sum() == own
    assert len(mask) > own


def test_the_first_prompt_names_files_and_actions(bench):
    """The request, the targets and the given files' names; no harness and no contents."""
    task = bench.task(bench.row(context={"docs/spec.md": "SPEC"}), mode="agent", turns=3)
    (problem,) = task.problems("all")
    system, user = problem.prompt
    assert "```run simulate verif/example_tb.sv" in system.content
    assert "Write the module inc" in user.content
    assert "Files to be judged: rtl/inc.sv" in user.content
    assert "Files that are there: docs/spec.md\n" in user.content
    assert "You have 3 turns." in user.content
    text = system.content + user.content
    assert not [secret for secret in (*SECRETS, "SPEC") if secret in text]


def test_the_harness_is_out_of_reach(bench):
    """Neither list, read nor run reaches the hidden tests; writing there is refused."""
    spy = (
        'module tb; integer f, c; initial begin f = $fopen("/src/test_inc.py", "r");\n'
        'if (f) while (!$feof(f)) begin c = $fgetc(f); $write("%c", c); end\n'
        'else $display("nothing there"); end endmodule\n'
    )
    trajectory, reward, said = act(
        bench,
        "```list\n```\n```read src/test_inc.py\n```\n```read /src/test_inc.py\n```\n"
        "```read rtl/../src/test_inc.py\n```\n```read ../src/.env\n```",
        write("src/conftest.py", "x = 1\n") + write("/code/src/conftest.py", "x = 1\n"),
        write("verif/spy.sv", spy) + "```run simulate verif/spy.sv\n```",
        write("verif/spy.sv", '`include "/src/test_inc.py"\n')
        + "```run compile verif/spy.sv\n```\n```run compile src/test_inc.py\n```",
        write("rtl/inc.sv", RIGHT),
        "```submit\n```",
    )
    assert said[0].count("is not a path below rtl/, verif/, docs/, rundir/") == 4
    assert said[1].count("is not a path below") == 2
    assert "nothing there" in said[2]
    assert "not found" in said[3]
    for message in said:
        for secret in ("import cocotb", "dut.a.value", "get_runner", "VERILOG_SOURCES"):
            assert secret not in message
    assert trajectory.files == {"rtl/inc.sv": RIGHT}
    assert reward.score01 == 1.0


def test_what_a_simulation_writes_does_not_come_back(bench):
    """A testbench that overwrites the design, or the results, changes nothing."""
    forger = (
        "module tb; integer f; initial begin\n"
        'f = $fopen("/code/rtl/inc.sv", "w"); $fwrite(f, "forged"); $fclose(f);\n'
        'f = $fopen("/code/rundir/results.xml", "w"); $fwrite(f, "<x/>"); $fclose(f);\n'
        '$display("wrote"); end endmodule\n'
    )
    trajectory, reward, said = act(
        bench,
        write("rtl/inc.sv", WRONG)
        + write("verif/tb.sv", forger)
        + "```run simulate verif/tb.sv\n```",
        "```read rtl/inc.sv\n```\n```list\n```",
        "```submit\n```",
    )
    assert "wrote" in said[0]
    assert "forged" not in said[1]
    assert "results.xml" not in said[1]
    assert trajectory.files == {"rtl/inc.sv": WRONG}
    assert (reward.value, reward.score01) == (0.5, 0.0)


def test_files_that_were_given_are_no_answer(bench):
    """To submit the given design untouched is worth nothing, though it compiles."""
    row = bench.row(context={"rtl/inc.sv": WRONG})
    trajectory, reward, _ = act(bench, "```submit\n```", row=row)
    assert trajectory.files == {}
    assert reward.value == 0.0
    edit = (
        "```replace rtl/inc.sv\n<<<<<<<\n= a;\n=======\n= a + 8'd1;\n>>>>>>>\n```\n```submit\n```"
    )
    assert act(bench, edit, row=row)[1].score01 == 1.0


def test_only_target_files_are_taken(bench):
    """Testbenches, documents and work files of the agent are not part of its answer."""
    trajectory, reward, _ = act(
        bench,
        write("rtl/inc.sv", RIGHT) + write("verif/tb.sv", "broken") + write("rtl/z.sv", "broken"),
        "```submit\n```",
    )
    assert list(trajectory.files) == ["rtl/inc.sv"]
    assert reward.score01 == 1.0


def test_nothing_is_submitted_after_a_failed_action(bench):
    """A write that was refused or cut off keeps the agent from submitting what it did not mean."""
    trajectory, reward, said = act(
        bench,
        write("rtl/inc.sv", WRONG) + write("/etc/inc.sv", RIGHT) + "```submit\n```",
        write("rtl/inc.sv", RIGHT) + "```submit\n```",
    )
    assert "> submit\nerror: not submitted: an action before it failed" in said[0]
    assert trajectory.notes["ended"] == "submitted"
    assert reward.score01 == 1.0


def test_the_last_turn_counts_without_submit(bench):
    """When the turns are used up, the state is the answer; a cut-off write is not done."""
    texts = [write("rtl/inc.sv", RIGHT), f"```write rtl/inc.sv\n{PORTS}"]
    trajectory, reward, said = act(bench, *texts, turns=2)
    assert len(said) == 1
    assert trajectory.notes["ended"] == "turns"
    assert reward.score01 == 1.0


def test_messages_to_an_agent(bench):
    """No action, unknown ones, unknown tools and files: each is told, within the budget."""
    _, _, said = act(
        bench,
        "I am thinking.",
        "```delete rtl/inc.sv\n```\n```run rm\n```\n```run simulate\n```\n```read rtl/no.sv\n```"
        "\n```run compile rtl/no.sv\n```",
        "```list\n```\n" * 20,
        "```run compile\n```\n" * 5,
        "```submit\n```",
        feedback_tokens=450,
    )
    assert said[0].startswith("No action was found in your last message.")
    assert "there is no action 'delete'" in said[1]
    assert "there is no tool 'rm': compile, lint, stat, simulate" in said[1]
    assert "name your testbench" in said[1]
    assert said[1].count("there is no file rtl/no.sv") == 2
    assert "> list" in said[2]
    assert said[3].count("> run compile\nok") == 4
    assert "> run compile\nerror: at most 4 tools a turn are run" in said[3]
    assert all(len(text) <= 450 for text in said)


def test_lint_and_stat(bench):
    """Verilator's warnings, and the cells that Yosys needs."""
    for tool in ("verilator", "yosys"):
        require_tool(tool)
    narrow = RIGHT.replace("a + 8'd1", "a + {4'd1, 5'd1}")
    _, _, said = act(
        bench,
        write("rtl/inc.sv", narrow) + "```run lint\n```\n```run stat\n```",
        write("rtl/inc.sv", RIGHT + "x\n") + "```run stat\n```",
        "```submit\n```",
        feedback_tokens=2000,
    )
    assert "> run lint\nok 1 warning\nrtl/inc.sv:2:" in said[0]
    assert "warning WIDTH" in said[0]
    assert "Number of cells:" in said[0]
    assert "> run stat\nfailed\n" in said[1]
    assert "syntax error" in said[1]


def test_a_tool_that_waits_is_stopped(bench):
    """A file of the agent that includes a pipe stops the tool soon; the episode goes on."""
    text = '`define P "/proc/self/fd/1"\n`include `P\n' + RIGHT
    trajectory, _, said = act(
        bench,
        write("rtl/inc.sv", text) + "```run compile\n```",
        "```submit\n```",
        idle_s=2.0,
    )
    assert "it waited for something" in said[0]
    assert trajectory.notes["ended"] == "submitted"


def test_a_simulation_that_never_ends_is_stopped(bench):
    """The time limit holds for an agent's own testbench; the episode goes on."""
    loop = "module tb; initial forever begin end endmodule\n"
    flood = 'module tb; initial forever $display("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"); endmodule\n'
    trajectory, _, said = act(
        bench,
        write("verif/tb.sv", loop) + "```run simulate verif/tb.sv\n```",
        write("verif/tb.sv", flood) + "```run simulate verif/tb.sv\n```",
        "```submit\n```",
        timeout_s=0.4,
    )
    assert "> run simulate verif/tb.sv\nfailed\n" in said[0]
    assert "more output than allowed" in said[1]
    assert all(len(text) <= 512 for text in said)
    assert trajectory.notes["ended"] == "submitted"


def test_the_official_agentic_example(bench):
    """The released agentic problem is solved by an agent that writes its golden solution."""
    name = "cvdp_v1.1.0_example_agentic_code_generation_no_commercial_with_solutions.jsonl"
    context = BuildContext(dataset=shared_data("cvdp", "official_examples", name))
    config = CvdpConfig(mode="agent", turns=4, timeout_s=60.0)
    task = CvdpTask(config, context)
    (problem,) = task.problems("all")
    golden = task.reference(problem).files
    listing = "```list\n```\n"
    texts = [listing, *(write(path, text) for path, text in golden.items()), "```run compile\n```"]
    trajectory = asyncio.run(_played(task, problem, [*texts, "```submit\n```"]))
    said = [segment.text for segment in trajectory.segments if segment.author == "env"]
    assert "src/" not in said[0]
    assert "> run compile\nok" in said[-1]
    assert asyncio.run(CvdpReward(config, context)(problem, trajectory)).score01 == 1.0


class TestAgentTask(TaskContract):
    """A data set worked on by an agent."""

    options: ClassVar[dict[str, Any]] = {"mode": "agent", "turns": 3}

    @pytest.fixture(autouse=True)
    def _bench(self, bench):
        self.bench = bench
        self.rows = [
            {**bench.row(id=f"cvdp_copilot_inc_{place:04}"), "split": split}
            for place, split in enumerate(("train", "test"))
        ]

    def make_task(self) -> CvdpTask:
        return self.bench.task(*self.rows, **self.options)


class TestDebuggingTask(TestAgentTask):
    """The same in three turns."""

    options: ClassVar[dict[str, Any]] = {"turns": 3}


READS = """\
module tb;
  integer fd, got; reg [8*11:1] window;
  task show(input [8*60:1] name);
    begin
      fd = $fopen(name, "r");
      if (fd != 0) begin
        got = $fgetc(fd);
        while (got >= 0) begin
          window = {window[8*10:1], got[7:0]};
          if (window == "canary-4f1e") $display("%0s holds %s", name, window);
          got = $fgetc(fd);
        end
        $fclose(fd);
      end
    end
  endtask
  initial begin
    show("/proc/1/environ"); show("/proc/self/environ"); show("/proc/2/environ");
    show("/proc/3/environ"); show("/proc/1/cmdline"); show("/proc/1/task/1/environ");
    show("/proc/self/root/proc/1/environ"); show("/proc/thread-self/environ");
    show("/proc/cmdline"); show("/proc/keys"); show("/etc/passwd"); show("/etc/resolv.conf");
    $display("\\033]0;taken\\007\\033[2J\\033[31mred");
    $display("end of reads"); $finish;
  end
endmodule
"""


@pytest.mark.one_of(3)  # test_hostile.py reads the same files in each sandbox
@pytest.mark.usefixtures("place")
@pytest.mark.places("fresh", "rootfs", "docker")
def test_no_key_of_this_machine_reaches_a_message(bench, place, monkeypatch):
    """A testbench that reads every environment it can name brings no key into the next message."""
    keys = ("OPENAI_API_KEY", "HF_TOKEN", "TINKER_API_KEY", "AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY")
    for name in keys:
        monkeypatch.setenv(name, "canary-4f1e")
    include = '`include "/proc/1/environ"\n`include "/proc/self/environ"\n'
    _, _, said = act(
        bench,
        write("verif/tb.sv", READS) + "```run simulate verif/tb.sv\n```\n",
        write("rtl/inc.sv", include + RIGHT) + "```run compile\n```\n```run lint\n```\n"
        "```run stat\n```\n",
        "```submit\n```\n",
        **bench.place,
    )
    assert "end of reads" in said[0], said
    text = "\n".join(said)
    assert "canary" not in text
    assert not any(word in text for word in keys), text
    assert not any((ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 for c in text)
