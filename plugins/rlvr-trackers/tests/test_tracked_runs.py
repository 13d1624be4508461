"""A run logged by all four trackers at once, cut back and resumed, as their own readers see it."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from rlvr_process import run_rlvr

from rlvr_trackers.wandb import _last_step

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

STEPS = [1, 2, 3, 4]
SMALL = (
    *("train.problems=2", "sampler.group_size=2", "eval.samples=2", "eval.problems=1"),
    *("sampler.max_tokens=4", "eval.every=2", "checkpoint.every=2"),
)
KEYS = ("table_every=2", "table_rows=3", "timeout_s=200")
TRACKERS = ("wandb", "tensorboard", "mlflow", "trackio")
SEEN = {
    "wandb": "wandb sync .*here/trackers/wandb/offline-run-",
    "tensorboard": "tensorboard --logdir here/trackers/tensorboard",
    "mlflow": "mlflow ui --backend-store-uri {uri}  # run .* of letters",
    "trackio": "trackio show --project letters  # run here-",
}
"""What each tracker's run says at its end of where it logged."""
THERE = [name for name in TRACKERS if importlib.util.find_spec(name)]


@frozen
class Logged:
    """A run directory, MLflow's place, and the trackers' ids before and after the resume."""

    directory: Path
    uri: str
    before: dict[str, str]
    after: dict[str, str]

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Objects of a file of the run."""
        text = (self.directory / name).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Logged:
    """A run of all trackers; MLflow's place is an SQLite file."""
    folder = tmp_path_factory.mktemp("tracked")
    return tracked(folder, THERE, f"sqlite:///{folder}/mlflow.db")


@pytest.fixture(scope="module")
def run_in_files(tmp_path_factory: pytest.TempPathFactory) -> Logged:
    """A run of MLflow alone, whose place is a folder."""
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    folder = tmp_path_factory.mktemp("tracked")
    return tracked(folder, ["mlflow"], f"file:{folder}/store")


def tracked(folder: Path, trackers: list[str], uri: str) -> Logged:
    """
    Three steps, then a resume from the checkpoint of step 2 to step 4.

    Step 3 is trained twice, as after a kill between two checkpoints.
    """
    pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed")
    pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed")
    options = [f"{name}.{key}" for name in trackers for key in KEYS]
    options += [f"{name}.project=letters" for name in trackers if name != "tensorboard"]
    if "wandb" in trackers:
        options += ["wandb.mode=offline"]
    if "mlflow" in trackers:
        options += [f"mlflow.uri={uri}", "mlflow.name=first"]
        options += [f"mlflow.artifacts={folder}/artifacts"]
    seen = {name: SEEN[name].format(folder=folder, uri=uri) for name in trackers}
    before = _ids(
        *(folder, seen, "--plugin", "toy", "--algo", "grpo", "--callback", ",".join(trackers)),
        *("--steps", "3", "--out", "here", *SMALL, *options),
    )
    shutil.rmtree(folder / "here" / "checkpoints" / "step-000003")
    after = _ids(folder, seen, "--resume", "here", "--steps", "4")
    return Logged(folder / "here", uri, before, after)


def _ids(folder: Path, seen: dict[str, str], *words: str) -> dict[str, str]:
    """Run; give back the id of the run in each tracker of `seen`."""
    place = {"TRACKIO_DIR": str(folder / "trackio"), "HF_HUB_OFFLINE": "1"}
    place["MLFLOW_ALLOW_FILE_STORE"] = "true"
    done = run_rlvr("run", *words, "--json", cwd=folder, env={**os.environ, **place})
    assert done.returncode == 0, done.stderr
    assert "tracker_stopped" not in done.stderr, done.stderr
    for name, said in seen.items():
        line = rf"run_tracked .*see=.*{said}.* tracker={name}$"
        assert re.search(line, done.stderr, re.MULTILINE), done.stderr
    assert json.loads(done.stdout)["run"] == "here"  # nothing else stands on standard output
    last = 4 if "--resume" in words else 3
    ids = {}
    for name in seen:
        kept = json.loads((folder / "here" / "trackers" / f"{name}.json").read_text("utf-8"))
        assert kept["last"] == {"metrics": last, "table": 3, "evaluation": last}, name
        ids[name] = kept["id"]
    return ids


def check(
    run: Logged, name: str, found: dict[str, list[tuple[int, Any]]], *, digits: float = 1e-12
) -> None:
    """Every metric and pass rate of the run directory, each step once and in order."""
    assert run.before[name] == run.after[name]
    metrics = {line.pop("step"): line for line in run.lines("metrics.jsonl")}
    names = {name for line in metrics.values() for name in line}
    assert {"reward/mean", "reward/pass", "loss", "time/total_s"} <= names
    for metric in names:
        steps = [step for step, line in metrics.items() if metric in line]
        logged = [step for step, _ in found[metric]]
        assert logged == sorted(set(logged)), metric
        # step 3 was logged before the resume, when other times were taken in it
        assert logged == steps or metric.startswith("time/"), metric
        for step, value in found[metric]:
            own = pytest.approx(metrics[step].get(metric, math.nan), rel=digits)
            assert value == own or (step == 3 and metric != "reward/mean"), (metric, step)
    assert [step for step, _ in found["reward/mean"]] == STEPS
    assert [step for step, _ in found["eval/pass1"]] == [0, 2, 3, 4]
    for line in run.lines("eval.jsonl"):
        numbers = {key: line[key] for key in ("pass1", "low", "high", "reward_mean", "samples")}
        numbers |= {f"pass_at/{k}": value for k, value in line["pass_at"].items()}
        for key, value in numbers.items():
            logged_value = dict(found[f"eval/{key}"])[line["step"]]
            assert logged_value == pytest.approx(value, rel=digits), key


def check_rows(rows: list[dict[str, Any]]) -> None:
    """Three of the four trajectories of a step, with prompt, answer and verdict."""
    assert len(rows) == 3
    for row in rows:
        assert row["prompt"]
        assert row["outcome"] == "reward"
        assert 0 <= row["score01"] <= 1


def test_tensorboard(run: Logged) -> None:
    """TensorBoard's own reader finds the scalars, the configuration and the trajectories."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.directory / "trackers" / "tensorboard"))
    events.Reload()

    tags = events.Tags()
    check(
        run,
        "tensorboard",
        {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags["scalars"]},
        digits=1e-6,  # float32
    )
    texts = {t: [(e.step, _text(e)) for e in events.Tensors(t)] for t in tags["tensors"]}
    assert [step for step, _ in texts["trajectories"]] == [1, 3]
    blocks = texts["trajectories"][0][1].split("```")[1::2]
    check_rows([json.loads(block) for block in blocks])
    ((_, config),) = texts["config"]
    assert json.loads(config.strip("`"))["sampler.group_size"] == 2


def _text(event: Any) -> str:
    return str(event.tensor_proto.string_val[0].decode())


# sqlalchemy 2.1 deprecates what MLflow calls
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_mlflow(run: Logged) -> None:
    """MLflow's client finds one finished run with metrics, parameters and tables."""
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
    check_mlflow(run, mlflow.MlflowClient(tracking_uri=run.uri))


def test_mlflow_in_a_folder(run_in_files: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, with `.` for `/` in the names of metrics: `loss` and `loss/policy` are files."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    check_mlflow(run_in_files, mlflow.MlflowClient(tracking_uri=run_in_files.uri), slash=".")


def check_mlflow(run: Logged, client: Any, slash: str = "/") -> None:
    """A finished run with metrics, parameters and tables."""
    own = run.after["mlflow"]
    experiment = client.get_experiment_by_name("letters")
    (kept,) = client.search_runs([experiment.experiment_id])
    assert (kept.info.run_id, kept.info.run_name) == (own, "first")
    assert kept.info.status == "FINISHED"
    assert kept.data.params["sampler.group_size"] == "2"
    history = {
        name.replace(slash, "/"): [(m.step, m.value) for m in client.get_metric_history(own, name)]
        for name in kept.data.metrics
    }
    check(run, "mlflow", {name: sorted(values) for name, values in history.items()})
    files = [file.path for file in client.list_artifacts(own, "trajectories")]
    assert files == [f"trajectories/step-00000{step}.json" for step in (1, 3)]
    (text,) = run.directory.parent.glob(f"artifacts/{own}/artifacts/{files[0]}")
    table = json.loads(text.read_text(encoding="utf-8"))
    check_rows([dict(zip(table["columns"], row, strict=True)) for row in table["data"]])


def test_trackio(run: Logged) -> None:
    """Trackio's local files hold one run with its configuration and a table of trajectories."""
    pytest.importorskip("trackio", reason="trackio is not installed")
    import sqlite3

    place = run.directory.parent / "trackio"

    # read by SQL: trackio takes its folder from the environment of the process that imports it
    with sqlite3.connect(place / "letters.db") as base:
        rows = base.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id").fetchall()
        configs = base.execute("SELECT run_name, config FROM configs").fetchall()
    base.close()
    assert {name for name, _, _ in rows} == {run.after["trackio"]}
    found: dict[str, list[tuple[int, Any]]] = {}
    for _, step, metrics in rows:
        for name, value in json.loads(metrics).items():
            found.setdefault(name, []).append((step, value))
    check(run, "trackio", found)
    assert [step for step, _ in found["trajectories"]] == [1, 3]
    check_rows(found["trajectories"][0][1]["_value"])
    assert {json.loads(config)["sampler.group_size"] for _, config in configs} == {2}


def test_wandb_offline(run: Logged) -> None:
    """The two offline files have one id; together they hold each step once."""
    pytest.importorskip("wandb", reason="wandb is not installed")

    files = sorted((run.directory / "trackers" / "wandb").glob("offline-run-*/*.wandb"))
    assert [file.name for file in files] == [f"run-{run.after['wandb']}.wandb"] * 2
    found: dict[str, list[tuple[int, Any]]] = {}
    configs: dict[str, str] = {}
    for file in files:
        for record in _records(file):
            kind = record.WhichOneof("record_type")
            if kind == "history":
                items = {"/".join(i.nested_key) or i.key: i.value_json for i in record.history.item}
                step = int(items.pop("_step"))
                for name, text in items.items():
                    found.setdefault(name, []).append((step, json.loads(text)))
            updates = {"run": record.run.config.update, "config": record.config.update}
            for item in updates.get(kind, ()):
                configs["/".join(item.nested_key) or item.key] = item.value_json
    check(run, "wandb", found)
    assert [step for step, _ in found["trajectories/path"]] == [1, 3]
    table = json.loads((files[0].parent / "files" / found["trajectories/path"][0][1]).read_text())
    check_rows([dict(zip(table["columns"], row, strict=True)) for row in table["data"]])
    assert configs["sampler.group_size"] == "2"
    metadata = [path for path in files[0].parent.rglob("*metadata*") if path.is_file()]
    assert not metadata  # it would hold the command line
    place = run.directory / "trackers"
    assert _last_step(place, run.after["wandb"]) == 4
    os.truncate(files[1], files[1].stat().st_size - 40)  # as of a process killed while it wrote
    assert 3 <= _last_step(place, run.after["wandb"]) <= 4
    shutil.rmtree(files[1].parent)
    assert _last_step(place, run.after["wandb"]) == 3


def _records(file: Path) -> Iterator[Any]:
    """Records of a wandb file: LevelDB's log format after a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, block, whole = file.read_bytes(), 7, 32768, b""
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        if not kind:
            break
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the whole record, or its last piece
            yield Record.FromString(whole)
            whole = b""
