"""On-policy distillation from the command line: taught, resumed, and refused with the reason."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from rlvr import PluginError
from rlvr.assembly.configure import configure
from rlvr.assembly.configured import Configured
from rlvr.cli.main import main
from rlvr.config.part_flags import PartFlags
from rlvr.plugins.host import PluginHost

pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed: pip install rlvr-algos")

Call = Callable[..., tuple[int, str, str]]
OPD = ("run", "--plugin", "toy", "--algo", "opd", "eval.samples=0", "torch.threads=1")
SMALL = ("train.problems=2", "sampler.group_size=2", "train.passes=2", "checkpoint.every=1")
OTHER = "gpt2:new?layers=1&heads=1&width=8"  # tokens are bytes, the toy's are six letters


def lines(path: Path) -> list[dict[str, float]]:
    """Metrics of each step, without times."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in r.items() if not k.endswith("_s")} for r in records]


def test_a_run_is_taught_and_resumed(rlvr_here: Call, tmp_path: Path) -> None:
    """What the teacher says is logged; a step and one more are the run of two, to the bit."""
    taught = (*OPD, "--teacher", "starter", "--seed", "2", *SMALL)
    assert rlvr_here(*taught, "--steps", "2", "--out", "whole")[0] == 0
    assert rlvr_here(*taught, "--steps", "1", "--out", "parts")[0] == 0
    assert rlvr_here(*taught, "--steps", "2", "--resume", "parts")[0] == 0

    metrics = lines(tmp_path / "whole/metrics.jsonl")
    assert metrics[0]["teacher/kl"] == pytest.approx(0.0, abs=1e-6)  # its teacher is its start
    assert metrics[1]["teacher/kl"] != metrics[0]["teacher/kl"]
    assert metrics[1].keys() >= {"teacher/logprob", "advantage/clipped"}
    assert lines(tmp_path / "parts/metrics.jsonl") == metrics


def test_a_teacher_with_another_tokenizer_teaches(rlvr_here: Call, tmp_path: Path) -> None:
    """
    Letters by one tokenizer, bytes by the other: said once, and how much was compared is logged.

    Every letter and every end is 1-1 here, and every prompt was rendered by the teacher.
    """
    code, _, err = rlvr_here(*OPD, "--teacher", OTHER, *SMALL, "--steps", "2", "--out", "r")

    assert code == 0, err
    assert err.count("teacher_aligned_by_bytes") == 1
    assert "6 ids here, 257 there" in err
    for metrics in lines(tmp_path / "r/metrics.jsonl"):
        assert (metrics["align/1-1"], metrics["align/masked"]) == (1.0, 0.0)
        assert metrics["align/rendered"] == 1.0
        assert metrics["teacher/kl"] != 0.0
        assert "align/unmatched_mass" not in metrics  # nobody asked for likely tokens


@pytest.mark.one_of(4)
@pytest.mark.parametrize("teacher", ["starter", OTHER], ids=["same", "other"])
@pytest.mark.parametrize("mode", ["supervised", "both"])
def test_a_teachers_distributions_are_learnt(
    rlvr_here: Call, tmp_path: Path, mode: str, teacher: str
) -> None:
    """
    In both modes, from a teacher with the same tokenizer or another: logged, and resumed exactly.

    From its own start model there is nothing to learn at first, and later there is.
    """
    asked = (*OPD, "--teacher", teacher, "--seed", "2", *SMALL, f"opd.mode={mode}")
    assert rlvr_here(*asked, "--steps", "2", "--out", "whole")[0] == 0
    assert rlvr_here(*asked, "--steps", "1", "--out", "parts")[0] == 0
    assert rlvr_here(*asked, "--steps", "2", "--resume", "parts")[0] == 0

    metrics = lines(tmp_path / "whole/metrics.jsonl")
    assert lines(tmp_path / "parts/metrics.jsonl") == metrics
    is_same = teacher == "starter"
    for line in metrics:
        assert line.keys() >= {"loss/distill", "loss/policy", "teacher/kl"}
        assert ("align/unmatched_mass" in line) != is_same
    if is_same:
        # two updates a step: the first starts at the teacher itself
        assert 0.0 <= metrics[0]["loss/distill"] < metrics[1]["loss/distill"]
    else:
        assert metrics[0]["align/unmatched_mass"] > 0.5  # it knows 257 tokens, the student 6
        assert metrics[0]["loss/distill"] > 1.0


def test_supervised_leaves_the_kl_out_of_the_advantage(rlvr_here: Call, tmp_path: Path) -> None:
    """Without a reward the policy gradient is then nothing: the loss is the divergence alone."""
    words = (*OPD, "--teacher", OTHER, *SMALL, "advantage.reward_coef=0", "--steps", "1")
    assert rlvr_here(*words, "opd.mode=supervised", "opd.coef=0.5", "--out", "r")[0] == 0

    (line,) = lines(tmp_path / "r/metrics.jsonl")
    assert line["loss/policy"] == pytest.approx(0.0, abs=1e-7)
    assert line["loss"] == pytest.approx(0.5 * line["loss/distill"], rel=1e-4)
    assert line["teacher/kl"] != 0.0


def test_teachers_by_label_may_have_other_tokenizers(rlvr_here: Call, tmp_path: Path) -> None:
    """Problems of letter a go to the start model, all others to one that reads bytes."""
    routed = f"*={OTHER},family:a=starter"
    words = (*OPD, "--teacher", routed, "sampler.group_size=2", "train.problems=8")
    code, _, err = rlvr_here(*words, "opd.mode=both", "opd.top_k=4", "--steps", "1", "--out", "r")

    assert code == 0, err
    assert err.count("teacher_aligned_by_bytes") == 1
    (line,) = lines(tmp_path / "r/metrics.jsonl")
    assert line["align/1-1"] == 1.0
    assert line["loss/distill"] > 0.0


def test_what_the_teacher_was_trained_on_is_the_students_too(
    rlvr_here: Call, tmp_path: Path
) -> None:
    """The lineage of a student holds its teacher's, so that a held-out claim stays honest."""
    grpo = ("run", "--plugin", "toy", "--steps", "1", "--out", "teacher", "eval.samples=0")
    assert rlvr_here(*grpo)[0] == 0
    (model,) = (tmp_path / "teacher/checkpoints").glob("*/model")
    assert rlvr_here(*OPD, "--teacher", f"gpt2:{model}", "--steps", "1", "--out", "student")[0] == 0

    record = json.loads((tmp_path / "student/run.json").read_text())
    assert record["families_before"] == record["families"] != []
    assert record["config"]["advantage.teacher"] == f"gpt2:{model}"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "name one whose tokenizer is the policy's: --teacher"),
        (["--teacher", "nobody:x"], 3, "gpt2:..., hf:..."),
        (["--teacher", "gpt2:nowhere"], 2, "no such folder"),
        (["--teacher"], 2, "--teacher was given without a value"),
        (["--teacher", "starter", "advantage.teacher=gpt2:x"], 2, "are the same option"),
        (["--teacher", "starter", "advantage.kl_penalty_coef=0"], 2, "nothing it says would count"),
        (["--teacher", "starter", "sampler.top_p=0.5"], 2, "every ratio is biased"),
        (["--teacher", "starter", "sampler.group_size=1"], 2, "groups of one trajectory"),
    ],
)
def test_bad_wishes_are_refused_before_anything_is_sampled(
    rlvr_here: Call, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    """With the exit code of the contract, what was found, and no run directory left."""
    found, _, err = rlvr_here(*OPD, *words, "--steps", "1", "--out", "r")

    assert (found, "Traceback" in err) == (code, False), err
    assert said in err
    assert not (tmp_path / "r/metrics.jsonl").exists()


def test_an_algorithm_without_a_teacher_has_no_such_flag(rlvr_here: Call) -> None:
    """Nothing is accepted and ignored."""
    code, _, err = rlvr_here("run", "--plugin", "toy", "--algo", "grpo", "--teacher", "starter")

    assert code == 2
    assert "unknown argument '--teacher'" in err


def test_help_shows_the_algorithms_options(capsys: pytest.CaptureFixture[str]) -> None:
    """With their flags, where they are no other part's: both parts here have a `kl_coef`."""
    assert main(["run", "--plugin", "toy", "--algo", "opd", "--help"]) == 0

    shown = capsys.readouterr().out
    assert "advantage.teacher, --teacher " in shown
    assert "advantage.kl_coef  " in shown
    assert "opd.kl_coef  " in shown
    assert "opd.mode, --mode " in shown
    assert "toy.letters, --letters " in shown


FAR = """
    from attrs import frozen
    from rlvr import hookimpl, option
    from rlvr import AdvantageSpec, AlgorithmSpec, TeacherSpec
    RLVR_API = 1

    @frozen(kw_only=True)
    class FarConfig:
        url: str = option("", "Where")

    @hookimpl
    def rlvr_teachers():
        yield TeacherSpec(
            name="far", target=__name__ + ":Far", models=("far",),
            config=__name__ + ":FarConfig",
        )

    @hookimpl
    def rlvr_advantages():
        yield AdvantageSpec(
            name="taught", target="rlvr_algos.advantages.opd:OpdAdvantage", namespace="advantage",
            config="rlvr_algos.shaping.config:OpdConfig", {teachers}
        )

    @hookimpl
    def rlvr_algorithms():
        yield AlgorithmSpec(name="taught", sampler="group", advantage="taught", loss="reinforce")
"""


def configured(algo: str, *overrides: str) -> Configured:
    """What the words resolve to."""
    args = Namespace(
        plugin="toy", algo=algo, overrides=list(overrides), part_flags=PartFlags(command="rlvr run")
    )
    return configure(args, PluginHost.load({}))


def test_the_teachers_own_options_are_known(importable_site) -> None:  # type: ignore[no-untyped-def]
    """Those of the plugin that takes its model, and only while such a teacher is asked for."""
    importable_site.add("far", FAR.format(teachers='teachers=("advantage.teacher",)'))

    found = configured("taught", "advantage.teacher=far:x", "far.url=there")

    assert [spec.name for spec in found.chosen.teachers] == ["far"]
    assert found.options.values["far.url"] == "there"
    assert configured("taught", "advantage.teacher=gpt2:x").chosen.teachers[0].name == "torch"
    with pytest.raises(Exception, match=r"far\.url") as caught:
        configured("taught", "advantage.teacher=gpt2:x", "far.url=there")
    assert "teacher far" in str(caught.value)


def test_a_scheme_nobody_takes_is_told_at_once(importable_site) -> None:  # type: ignore[no-untyped-def]
    """While options are resolved: no model was loaded."""
    importable_site.add("far", FAR.format(teachers='teachers=("advantage.teacher",)'))

    with pytest.raises(PluginError, match=r"teachers can be: far:\.\.\., .*gpt2:"):
        configured("taught", "advantage.teacher=farther:x")
