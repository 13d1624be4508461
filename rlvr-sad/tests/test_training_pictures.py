"""Distilling trajectories with pictures by the command line, with tiny vision-language models."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from training_fixture import Bench, bench_in
from vision_fixture import picture, record, save_model, write_records

from rlvr import BuildContext, ConfigError, SamplingParams, sample_groups
from rlvr.training.stages import datum_of
from rlvr_sad.config import SadConfig
from rlvr_sad.replay.sampler import ReplaySampler
from rlvr_sad.task import SadTask
from rlvr_sad.teacher_cache.make import Wish, make

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
OPTIONS = "train.lr=1e-2 train.problems=4 eval.every=2 checkpoint.every=2 sad.held_out=0.2"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Ten chats about pictures, two about nothing, two whose pictures cannot be read."""
    found = bench_in(tmp_path_factory.mktemp("pictures"))
    for name, seed in (("student", 1), ("teacher", 2)):
        save_model(found.folder / name, seed)
    for n in range(10):
        picture(found.folder, f"{n}.png", (25 * n, 0, 255 - 25 * n))
    (found.folder / "broken.png").write_bytes(b"no picture")
    bad = [record(12, "missing.png"), record(13, "broken.png")]
    records = [*(record(n, f"{n}.png") for n in range(10)), record(10), record(11), *bad]
    write_records(found.folder / "p.jsonl", records)
    return found


@pytest.fixture(scope="module")
def straight(bench: Bench) -> str:
    """What a run of four steps said."""
    done = bench.train(f"--dataset p.jsonl {models('student')} --out straight --steps 4 {OPTIONS}")
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def models(student: str) -> str:
    """The flags of a student and its teacher."""
    return f"--model hf:{student} --teacher hf:teacher"


def without_times(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Metrics without what a clock says."""
    clocks = ("time/", "rate/", "verify/cost_s", "pipeline/wait_s", "seconds")
    return [{k: v for k, v in r.items() if not k.startswith(clocks)} for r in records]


def weights(folder: Path) -> bytes:
    """Of a checkpoint."""
    return (folder / "model" / "model.safetensors").read_bytes()


def test_a_student_that_sees_learns_from_a_teacher_that_sees(bench: Bench, straight: str) -> None:
    """The held-out loss falls; what cannot be read is said with line and reason, and left out."""
    evaluations = [r["measures"]["eval/loss"] for r in bench.lines("straight", "eval.jsonl")]

    assert evaluations[0] > evaluations[1] > evaluations[2] > 0
    assert "media_not_shown" not in straight
    for line, name in ((13, "missing.png"), (14, "broken.png")):
        assert f"p.jsonl:{line}: the picture {name} was to be read" in straight
    (kept,) = (bench.folder / "straight" / "checkpoints").glob("step-000004")
    assert (kept / "model" / "processor_config.json").is_file()
    from rlvr_torch.models.hf.load import load_net

    assert load_net(str(kept / "model")).image_processor is not None


@pytest.mark.thorough
def test_resumed_is_as_if_never_stopped(bench: Bench, straight: str) -> None:
    """From the checkpoint of the second step: metrics, evaluations and weights to the bit."""
    assert straight
    shutil.copytree(bench.folder / "straight", bench.folder / "again")
    shutil.rmtree(bench.folder / "again" / "checkpoints" / "step-000004")
    done = bench.rlvr("run --resume again --steps 4", forks=True)
    assert done.returncode == 0, done.stderr[-3000:]

    for name in ("metrics.jsonl", "eval.jsonl"):
        first, second = (without_times(bench.lines(run, name)) for run in ("straight", "again"))
        assert first[-2:] == second[-2:]
    one, other = (
        bench.folder / run / "checkpoints" / "step-000004" for run in ("straight", "again")
    )
    assert weights(one) == weights(other)


def test_other_pixels_another_loss(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same records with other pictures: what the run's own parts make of them differs."""
    from rlvr.testing.backend import LikelihoodLoss
    from rlvr_torch.backend import TorchBackend

    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path / "cache"))
    context = BuildContext(model=f"hf:{bench.folder / 'student'}")
    path = write_records(tmp_path / "p.jsonl", [record(n, "a.png") for n in range(2)])

    async def loss() -> float:
        async with TorchBackend(None, context) as backend:
            task = SadTask(SadConfig(), BuildContext(dataset=path))
            policy, sampler = await backend.policy(), ReplaySampler(None, context)
            problems = task.problems("all")
            groups = await sample_groups(sampler, policy, task, problems, SamplingParams())
            data = [datum_of(group.trajectories[0], 1.0) for group in groups]
            return (await backend.eval_loss(data, LikelihoodLoss()))["loss"]

    found = []
    for colour in ((255, 0, 0), (255, 0, 0), (0, 0, 255)):
        picture(tmp_path, "a.png", colour)
        found.append(asyncio.run(loss()))

    assert found[0] == found[1]
    assert found[0] != pytest.approx(found[2], rel=1e-4)


def test_answers_with_pictures_are_not_kept(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a teacher's answers know tokens alone: said before anything is asked."""
    from rlvr_torch.backend import TorchBackend
    from rlvr_torch.teacher import TorchTeacher

    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path / "cache"))
    context = BuildContext(model=f"hf:{bench.folder / 'student'}")
    task = SadTask(SadConfig(), BuildContext(dataset=bench.folder / "p.jsonl"))

    async def keep() -> None:
        async with TorchBackend(None, context) as backend, TorchTeacher(None, context) as teacher:
            policy, sampler = await backend.policy(), ReplaySampler(None, context)
            wish = Wish(folder=tmp_path / "kept", k=2)
            await make(wish, teacher, policy, task, sampler, lambda *_: None)

    with pytest.raises(ConfigError, match="kept by tokens alone"):
        asyncio.run(keep())


def test_a_student_of_text_reads_places(bench: Bench) -> None:
    """As ever, and it is said; its file may lack the pictures."""
    done = bench.train("--dataset p.jsonl --out text --steps 1 eval.samples=0 train.problems=14")
    assert done.returncode == 0, done.stderr[-3000:]

    assert "media_not_shown" in done.stderr + done.stdout
    (metrics,) = bench.lines("text", "metrics.jsonl")
    assert metrics["data/trajectories"] == 14
    kept = next((bench.folder / "text" / "trajectories").iterdir())
    assert json.loads(kept.read_text().splitlines()[0])


def test_a_teacher_of_text_is_refused(bench: Bench) -> None:
    """Before anything is learnt: exit 2, and both ways out."""
    done = bench.train(
        f"--dataset p.jsonl --model hf:student --teacher {bench.teacher} --out blind --steps 1"
    )
    assert done.returncode == 2, done.stderr
    assert "trajectories with pictures" in done.stderr
    assert "reads text alone" in done.stderr
    assert not (bench.folder / "blind" / "metrics.jsonl").exists() or not bench.lines(
        "blind", "metrics.jsonl"
    )
