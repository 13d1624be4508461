"""A plugin whose parts break their promises: named in a few lines, exit 3, no traceback."""

from __future__ import annotations

import json
import re
import textwrap

import attrs
import pytest

import rlvr
from rlvr.cli.main import main
from tests.conftest import PluginSite

pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed: pip install rlvr-algos")

pytestmark = pytest.mark.integration

PLUGIN = """
import asyncio, math, os
from pathlib import Path
import attrs
import rlvr
from attrs import frozen
from rlvr import hookimpl
from rlvr.curriculum.builtin import *
from rlvr.builtin.file_checkpoints import FileCheckpointer
from rlvr.rollouts.group import GroupSampler
from rlvr.builtin.toy import ToyConfig, ToyReward, ToyTask
from rlvr import Advantage, Loss
from rlvr.specs import *
from rlvr import Message, Problem, Reward, Trajectory

RLVR_API = rlvr.API_VERSION
HOW = os.environ.get("BROKEN", "")

@hookimpl
def rlvr_tasks():
    yield TaskSpec(name="broken", target=__name__ + ":Task", reward="broken",
                   starter="rlvr.builtin.toy:starter")

@hookimpl
def rlvr_rewards():
    yield RewardSpec(name="broken", target=__name__ + ":Judge")

@hookimpl
def rlvr_samplers():
    yield SamplerSpec(name="broken", target=__name__ + ":sampler")

@hookimpl
def rlvr_advantages():
    yield AdvantageSpec(name="broken", target=__name__ + ":Credit")

@hookimpl
def rlvr_losses():
    yield LossSpec(name="broken", target=__name__ + ":Loss")

@hookimpl
def rlvr_checkpointers():
    yield CheckpointerSpec(name="broken", target=__name__ + ":Keeper")

@hookimpl
def rlvr_curricula():
    yield CurriculumSpec(name="broken", target=__name__ + ":Order")

@hookimpl
def rlvr_algorithms():
    yield AlgorithmSpec(name="broken", sampler="broken", advantage="broken", loss="broken")


def is_(name):
    if HOW == name + " raises":
        raise eval(os.environ.get("BROKEN_ERROR", "OSError(28, 'No space left on device')"))
    return HOW == name


class Task(ToyTask):
    def __init__(self, config, context):
        is_("task.build")
        super().__init__(ToyConfig(), context)

    def problems(self, split):
        is_("task.problems")
        found = list(super().problems(split))
        if is_("task.duplicates"):
            found += found[:1]
        if is_("task.type"):
            found[1] = "a problem"
        if is_("task.prompt"):
            found[1] = attrs.evolve(found[1], prompt="a text")
        if is_("task.content"):
            found[1] = attrs.evolve(found[1], prompt=[Message(role="user", content=3)])
        if is_("task.id"):
            found[1] = attrs.evolve(found[1], id=7)
        if is_("task.half"):
            found[1] = attrs.evolve(found[1], id="\\ud800")
        if is_("task.half content"):
            found[1] = attrs.evolve(found[1], prompt=[Message(role="user", content="\\ud800")])
        if is_("task.role"):
            found[1] = attrs.evolve(found[1], prompt=[Message(role=3, content="x")])
        return None if is_("task.none") else found

    def reference(self, problem):
        is_("task.reference")
        return "text" if is_("task.reference.type") else super().reference(problem)

    def episode(self, problem):
        is_("task.episode")
        return super().episode(problem)

    async def __aexit__(self, *body):
        is_("task.exit")
        if os.environ.get("BROKEN_EXIT") == "raises":
            raise RuntimeError("closing")
        if os.environ.get("BROKEN_EXIT") == "raises it again":
            raise body[1]
        return os.environ.get("BROKEN_EXIT") == "swallows"


class Judge(ToyReward):
    def __init__(self, config, context):
        pass

    async def __call__(self, problem, trajectory):
        if HOW.startswith("reward") and problem.id == "toy_b":
            is_("reward")
            return None
        return await super().__call__(problem, trajectory)


class Sampler(GroupSampler):
    async def sample(self, policy, task, problem, params):
        is_("sampler")
        found = [t async for t in super().sample(policy, task, problem, params)]
        if is_("sampler.few"):
            found = found[:-1]
        if is_("sampler.many"):
            found.append(attrs.evolve(found[0], index=7))
        if is_("sampler.place"):
            found = [attrs.evolve(t, index=0) for t in found]
        if is_("sampler.other"):
            found = [attrs.evolve(t, problem_id="toy_zz") for t in found]
        if is_("sampler.trajectory"):
            found = ["x"] * len(found)
        for trajectory in found:
            yield trajectory
        if is_("sampler.late"):
            raise RuntimeError("late")


class Listing(Sampler):
    def sample(self, *asked):
        return []


def sampler(config, context):
    return None if is_("sampler.build") else Listing() if is_("sampler.list") else Sampler()


class Credit(Advantage):
    def __init__(self, config, context):
        pass

    def __call__(self, groups):
        is_("advantage")
        rows = [[r.value - 0.5 for r in g.rewards] for g in groups]
        return {"advantage.none": None, "advantage.number": 1.0, "advantage.few": rows[:-1],
                "advantage.short": [row[:-1] for row in rows],
                "advantage.long": [[*row, 1.0] for row in rows],
                "advantage.huge": [[10**400 for _ in row] for row in rows],
                "advantage.nan": [[math.nan for _ in row] for row in rows],
                "advantage.text": [["1" for _ in row] for row in rows],
                "advantage.all None": [[None for _ in row] for row in rows]}.get(HOW, rows)


class Loss(Loss):
    importance_weighted = False

    def __init__(self, config, context):
        pass

    def __call__(self, data, logprobs, outputs):
        is_("loss")
        terms = [-(lp * lp.new_tensor(d.advantages * d.weights)).sum()
                 for d, lp in zip(data, logprobs)]
        whole = sum(terms)
        return {"loss.none": None, "loss.alone": whole, "loss.float": (1.0, {}),
                "loss.vector": (whole.expand(2), {}), "loss.detached": (whole.detach(), {}),
                "loss.metrics": (whole, None), "loss.metric text": (whole, {"a": "b"}),
                "loss.metric name": (whole, {1: 1.0}),
                "loss.metric vector": (whole, {"a": logprobs[0]}),
                "loss.complex": (whole * 1j, {}), "loss.meta": (whole.to("meta"), {}),
                }.get(HOW, (whole, {}))


class Keeper(FileCheckpointer):
    def __init__(self, config, context):
        super().__init__(None, context)

    async def save(self, step, state, backend):
        is_("checkpointer")
        found = await super().save(step, state, backend)
        if is_("checkpointer.leaves"):
            raise SystemExit(0)
        if is_("checkpointer.step"):
            return attrs.evolve(found, step=7)
        if is_("checkpointer.step text"):
            return attrs.evolve(found, step="0")
        if is_("checkpointer.path"):
            return attrs.evolve(found, path=Path("nowhere"))
        if is_("checkpointer.no path"):
            return attrs.evolve(found, path=None)
        return None if is_("checkpointer.none") else found


class Order(Curriculum):
    def __init__(self, config, context):
        pass

    def choose(self, problems, count, *, seed, step, history):
        is_("curriculum")
        if is_("curriculum.ids"):
            return [attrs.evolve(p, id="unknown") for p in problems[:count]]
        if is_("curriculum.texts"):
            return [p.id for p in problems[:count]]
        if is_("curriculum.none"):
            return None
        return problems[:count]
"""
RUN = (
    "run", "--plugin", "broken", "--algo", "broken", "--steps", "1", "--out", "r",
    "--curriculum", "broken", "run.checkpointer=broken", "eval.samples=0", "train.problems=2",
    "sampler.group_size=2", "verify.store=off",
    "sampler.max_tokens=6",
)  # fmt: skip
HOW = {
    "task.build raises": "task", "task.problems raises": "problems", "task.none": "yield",
    "task.duplicates": "toy_a", "task.type": "'a problem'", "task.prompt": "toy_b",
    "task.content": "toy_b", "task.id": "as id",
    "sampler.build": "sampler", "sampler raises": "sample", "sampler.few": "1 of them",
    "sampler.many": "3 of them", "sampler.place": "two trajectories with index 0",
    "sampler.other": "of 'toy_zz'", "sampler.list": "[] (list), which is no async generator",
    "sampler.late": "RuntimeError: late", "sampler.trajectory": "'x'",
    "advantage raises": "__call__", "advantage.none": "NoneType", "advantage.number": "float",
    "advantage.few": "rows of", "advantage.short": "rows of", "advantage.long": "rows of",
    "advantage.nan": "nan", "advantage.text": "'1'", "advantage.all None": "nothing was trained",
    "loss raises": "No space left", "loss.none": "None", "loss.alone": "tensor",
    "loss.float": "no scalar tensor", "loss.vector": "no scalar tensor",
    "loss.detached": "without a gradient", "loss.metrics": "as metrics",
    "checkpointer raises": "save",
    "checkpointer.none": "promised: the Checkpoint of step 1; came: None",
    "task.half": "half a character", "task.half content": "half a character",
    "task.role": "as a role", "advantage.huge": "(int)",
    "loss.metric text": "'b' (str) as metric", "loss.metric name": "as metric 1",
    "loss.metric vector": "as metric 'a'", "loss.complex": "no real number",
    "loss.meta": "no real number", "checkpointer.leaves": "SystemExit",
    "checkpointer.step": "the Checkpoint of step 7", "checkpointer.step text": "'0' (str)",
    "checkpointer.path": "where nothing is", "checkpointer.no path": "None as path",
    "curriculum raises": "choose", "curriculum.ids": "unknown", "curriculum.texts": "'toy_",
    "curriculum.none": "choose",
}  # fmt: skip


@pytest.fixture
def site(site_here: PluginSite) -> PluginSite:
    """The plugin, installed, and an empty folder to run in."""
    site_here.add("broken", PLUGIN)
    return site_here


@pytest.mark.parametrize(("how", "word"), HOW.items(), ids=HOW)
def test_a_broken_part_is_named_in_a_few_lines(
    how: str, word: str, site: PluginSite, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Plugin, part and what came; exit 3; the traceback is in the run directory alone."""
    monkeypatch.setenv("BROKEN", how)

    code = main([*RUN])

    said = capsys.readouterr().err
    message = said[said.index("rlvr: ") :]
    assert code == 3, said
    assert "Traceback" not in said
    assert "this is a bug" not in said
    assert "run directory" not in said
    assert len(message.splitlines()) <= 6
    kind = how.partition(".")[0].partition(" ")[0]
    assert "broken" in message or kind == "curriculum", message
    assert kind in message or how.startswith("curriculum.ids"), message
    assert word in message
    if how.endswith("raises"):
        assert re.search(r"OSError: .*No space left on device \(\S*broken\.py:\d+\)", message)
    if how == "advantage raises":
        assert "No space left" in (site.home / "r" / "traceback.txt").read_text()


SHAPES = {
    "a function": """
        @rlvr.loss(importance_weighted=False)
        def made(data, logprobs, outputs):
            BODY
    """,
    "inherited": """
        class Base(Loss):
            importance_weighted = False
            def __call__(self, data, logprobs, outputs):
                BODY
        class made(Base):
            def __init__(self, config, context):
                pass
    """,
    "of a factory": """
        def made(config, context):
            class Inner(Loss):
                importance_weighted = False
                def __call__(this, data, logprobs, outputs):
                    BODY
            return Inner()
    """,
    "static": """
        class made(Loss):
            importance_weighted = False
            def __init__(self, config, context):
                pass
            @staticmethod
            def __call__(data, logprobs, outputs):
                BODY
    """,
    "decorated": """
        def wrapped(function):
            return lambda *given: function(*given)
        class made(Loss):
            importance_weighted = False
            def __init__(self, config, context):
                pass
            @wrapped
            def __call__(self, data, logprobs, outputs):
                BODY
    """,
}
ONE_LOSS = """
import rlvr
from rlvr import hookimpl, Loss
from rlvr.specs import AlgorithmSpec, LossSpec

RLVR_API = rlvr.API_VERSION

@hookimpl
def rlvr_losses():
    yield LossSpec(name="shape", target=__name__ + ":made")

@hookimpl
def rlvr_algorithms():
    yield AlgorithmSpec(name="shape", sampler="group", advantage="group", loss="shape")
"""


@pytest.mark.parametrize(
    ("shape", "body"),
    [
        *((shape, "raise ValueError('mine')") for shape in SHAPES),
        ("inherited", "next(iter(()))"),
        ("inherited", "e = ValueError(); raise e from e"),  # its own cause
    ],
)
def test_a_loss_of_any_shape_is_named_and_not_the_backend_that_calls_it(
    shape: str, body: str, site_here: PluginSite, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where Python turns its StopIteration into another error, in the backend's generator."""
    source = ONE_LOSS + textwrap.dedent(SHAPES[shape]).replace("BODY", body)
    file = site_here.add("shape", source)
    words = [word.replace("broken", "toy") for word in RUN]
    words[words.index("--algo") + 1] = "shape"
    words = [w for w in words if w != "run.checkpointer=toy"]
    at = words.index("--curriculum")
    del words[at : at + 2]

    assert main(words) == 3

    said = capsys.readouterr().err
    assert "plugin 'shape', loss 'shape' did not keep its promise: __call__" in said
    line = 1 + source.splitlines().index(next(x for x in source.splitlines() if body in x))
    assert f"{file.name}:{line})" in said


@pytest.mark.parametrize(
    "error", ["SystemExit(0)", "SystemExit('leaving')", "GeneratorExit()", "BaseException('own')"]
)
@pytest.mark.parametrize(
    "how",
    ["task.build", "task.problems", "task.episode", "task.exit", "sampler", "advantage", "loss",
     "checkpointer", "curriculum"],
)  # fmt: skip
def test_what_is_no_exception_is_a_fault_of_its_part_too(
    how: str, error: str, site: PluginSite, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Whatever it raises but Ctrl-C; a run that had begun keeps the checkpoint and traceback."""
    monkeypatch.setenv("BROKEN", f"{how} raises")
    monkeypatch.setenv("BROKEN_ERROR", error)

    code = main([*RUN])

    said = capsys.readouterr().err
    assert code == 3, said
    assert "Traceback" not in said
    assert f"rlvr: plugin 'broken', {how.partition('.')[0]} 'broken'" in said
    assert error.partition("(")[0] in said
    assert error.partition("(")[0] in (site.home / "r" / "traceback.txt").read_text()
    if (site.home / "r" / "run.json").exists() and how != "checkpointer":
        assert any((site.home / "r" / "checkpoints").glob("step-*"))


@pytest.mark.parametrize("closing", ["swallows", "raises", "raises it again"])
@pytest.mark.parametrize(
    ("how", "error", "code"),
    [
        ("sampler", "ValueError('first')", 3),
        ("task.problems", "ValueError('first')", 3),
        ("sampler", "KeyboardInterrupt()", 130),
    ],
)
def test_a_part_that_is_closed_hides_no_error_of_before(
    closing: str, how: str, error: str, code: int, site: PluginSite,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """What went wrong first is said; a failure to close after it is in the log."""
    monkeypatch.setenv("BROKEN", f"{how} raises")
    monkeypatch.setenv("BROKEN_ERROR", error)
    monkeypatch.setenv("BROKEN_EXIT", closing)

    assert main([*RUN]) == code

    said = capsys.readouterr().err
    assert ("part_not_closed" in said) is (closing == "raises"), said
    assert "first" in said or code == 130
    record = site.home / "r" / "run.json"
    assert not record.exists() or '"status": "done"' not in record.read_text()


@pytest.mark.parametrize("how", ["task.build", "task.problems", "task.exit"])
def test_ctrl_c_within_a_part_stays_ctrl_c(
    how: str, site: PluginSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is nobody's fault."""
    monkeypatch.setenv("BROKEN", f"{how} raises")
    monkeypatch.setenv("BROKEN_ERROR", "KeyboardInterrupt()")

    assert main([*RUN]) == 130


@pytest.mark.parametrize(
    ("error", "code"), [("ValueError('late')", 3), ("KeyboardInterrupt()", 130)]
)
@pytest.mark.parametrize(
    "words", ["score --golden", "score --completions a.jsonl", "eval --completions a.jsonl"]
)
def test_a_part_that_fails_as_it_is_closed_costs_no_result(
    words: str, error: str, code: int, site: PluginSite,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """What was judged is printed and written; then the error is said. So from Python."""
    monkeypatch.setenv("BROKEN", "task.exit raises")
    monkeypatch.setenv("BROKEN_ERROR", error)
    (site.home / "a.jsonl").write_text('{"id": "toy_a", "completion": "a"}\n')

    assert main([*words.split(), "--plugin", "broken", "--out", "v.jsonl", "--json"]) == code

    shown = capsys.readouterr()
    assert json.loads(shown.out)["problems"] == 4
    assert len((site.home / "v.jsonl").read_text().splitlines()) in (1, 4)
    assert ("late" in shown.err) is (code == 3), shown.err
    if words == "score --golden":
        with pytest.raises(rlvr.PartError if code == 3 else KeyboardInterrupt):
            rlvr.score("broken", golden=True, out="w.jsonl")
        assert len((site.home / "w.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize("how", ["reward", "reward raises"])
def test_one_bad_answer_does_not_end_score(
    how: str, site: PluginSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are scored; a share past the limit is exit 5, after the results."""
    monkeypatch.setenv("BROKEN", how)

    code = main(["score", "--plugin", "broken", "--golden", "--out", "v.jsonl", "--json"])

    shown = capsys.readouterr()
    verdicts = [json.loads(line) for line in (site.home / "v.jsonl").read_text().splitlines()]
    assert [v["reward"] for v in verdicts] == [1.0, None, 1.0, 1.0]
    for word in ("plugin 'broken'", "reward 'broken'", "__call__", "toy_b", "promised"):
        assert word in verdicts[1]["error"]
    assert code == 5, shown.err
    assert "Traceback" not in shown.err
    monkeypatch.delenv("BROKEN")
    assert main(["score", "--plugin", "broken", "--golden", "verify.max_failures=0.5"]) == 0


@pytest.mark.parametrize("how", ["task.reference raises", "task.reference.type", "task.problems"])
def test_other_commands_name_a_broken_part_too(
    how: str, site: PluginSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`score --golden` asks for references; `--debug` alone shows the traceback."""
    monkeypatch.setenv("BROKEN", how if "." in how[5:] or "raises" in how else how + " raises")

    assert main(["score", "--plugin", "broken", "--golden"]) == 3
    assert "Traceback" not in capsys.readouterr().err
    assert main(["score", "--plugin", "broken", "--golden", "--debug"]) == 3
    assert "Traceback" in capsys.readouterr().err


QUITS = """
import os
import attrs
from rlvr import RewardSpec, hookimpl, option

RLVR_API = 1

def quits(*given):
    raise eval(os.environ["RAISED"])

@hookimpl
def rlvr_rewards():
    yield RewardSpec(name="quits", target="no:where", config=__name__ + ":Options")

@attrs.frozen(kw_only=True)
class Options:
    w: float = option(1.0, "Weight", validator=quits)
"""


@pytest.mark.parametrize("error", ["SystemExit(0)", "KeyError('w')"])
@pytest.mark.parametrize("words", ["score --golden", "config show"])
def test_a_validator_that_leaves_ends_no_command_in_silence(
    words: str, error: str, site_here: PluginSite, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Exit 3: its plugin and options are named, and the line."""
    site_here.add("quits", QUITS)
    monkeypatch.setenv("RAISED", error)

    assert main([*words.split(), "--plugin", "toy", "--reward", "quits"]) == 3

    said = capsys.readouterr().err
    assert "rlvr: plugin 'quits': the options of 'quits'" in said
    assert re.search(rf"it raised {error.partition('(')[0]}: .* \(\S*quits\.py:\d+\)", said)


KEYED = """
import hashlib
import rlvr
from rlvr import hookimpl
from rlvr import RewardFn
from rlvr import RewardSpec
from rlvr import Reward
from site_helper import WORTH

RLVR_API = rlvr.API_VERSION

@hookimpl
def rlvr_rewards():
    yield RewardSpec(name="keyed", target=__name__ + ":Keyed", bounds=(-5.0, 5.0))

class Keyed(RewardFn):
    def __init__(self, config, context):
        pass

    def verdict_key(self, problem, trajectory):
        return hashlib.sha256((problem.id + trajectory.completion).encode()).hexdigest()

    def __call__(self, problem, trajectory):
        return Reward(value=WORTH, score01=1.0 if WORTH > 0 else 0.0)
"""


def test_a_reward_that_was_edited_gets_no_verdict_of_before(plugin_site: PluginSite) -> None:
    """Its author's key says nothing of its source; the core's part of the key does."""
    plugin_site = attrs.evolve(plugin_site, options={})
    plugin_site.add("keyed", KEYED)
    helper = plugin_site.path / "site_helper.py"
    words = ("score", "--plugin", "toy", "--reward", "keyed", "--golden", "--json", "--out", "v")

    def summary(worth: str) -> dict[str, object]:
        helper.write_text(f"WORTH = {worth}\n")
        done = plugin_site.rlvr(*words, PYTHONDONTWRITEBYTECODE="1")
        assert done.returncode == 0, done.stderr
        found: dict[str, object] = json.loads(done.stdout)
        return found

    assert summary("1.0")["cached"] == 0
    assert summary("1.0")["cached"] == 4
    edited = summary("-3.0")
    assert (edited["cached"], edited["reward_mean"], edited["right"]) == (0, -3.0, 0)
