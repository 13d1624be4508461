"""Agents in containers of their own: what they see, what is taken of them, and what they may use.

Each agent is a shell script in an image made of the simulator's; all of them are really run.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import evolve
from rlvr_process import run_rlvr

from rlvr import (
    BuildContext,
    ConfigError,
    PrerequisiteError,
    Problem,
    SamplingParams,
    Trajectory,
    sample_groups,
)
from rlvr_cvdp.agents.backend import AgentBackend
from rlvr_cvdp.agents.config import AgentConfig
from rlvr_cvdp.agents.sampler import AgentSampler
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.sandbox.docker import LABEL, owner_prefix
from rlvr_cvdp.sandbox.folders.root import root
from rlvr_cvdp.task import STARTER, CvdpTask
from rlvr_cvdp.verify.reward import read_answer

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

RECORD = CvdpProblem(
    id="cvdp_agentic_gate_0001",
    category="cid005",
    difficulty="easy",
    prompt="Write rtl/top.v.",
    context={"rtl/gate.v": "module gate; endmodule\n", "docs/spec.md": "# Gate\n"},
    targets=("rtl/top.v", "rtl/gate.v"),
    harness={"src/test_top.py": "HIDDEN", "docker-compose.yml": "HIDDEN"},
)
PROBLEM = Problem(id=RECORD.id, prompt=(), payload=RECORD)
RIGHT = "echo 'module top; endmodule' > rtl/top.v"
WAIT = "sleep 99"


def docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def image_of(sim_image: str) -> Iterator[Callable[..., str]]:
    """Makes an agent's image of a shell script (or of changes to an image); gone afterwards."""
    made: list[str] = []

    def make(script: str = "", *changes: str) -> str:
        started = changes or (f"ENTRYPOINT {json.dumps(['/bin/sh', '-c', script])}",)
        words = [word for change in started for word in ("--change", change)]
        container = docker("create", sim_image, "true")
        tag = f"rlvr-test-agent:{len(made)}-{time.time_ns()}"
        docker("commit", *words, container, tag)
        docker("rm", container)
        made.append(tag)
        return tag

    yield make
    for tag in made:
        docker("rmi", "-f", tag)


def attempt(
    image: str, problem: Problem = PROBLEM, count: int = 1, **options: object
) -> list[Trajectory]:
    """What the sampler makes of an agent; no container and no folder is left."""
    before = own_folders()

    async def work() -> list[Trajectory]:
        context = BuildContext(model=f"agent:{image}", workers=2)
        async with AgentBackend(AgentConfig(**options), context) as backend:  # type: ignore[arg-type]
            sampler = AgentSampler(None, context)
            params = SamplingParams(group_size=count)
            task = CvdpTask(CvdpConfig(), BuildContext())
            (group,) = await sample_groups(sampler, await backend.policy(), task, [problem], params)
            return list(group.trajectories)

    found = asyncio.run(work())
    assert docker("ps", "-aq", "--filter", f"ancestor={image}") == ""
    assert own_folders() <= before
    return found


def own_folders() -> set[Path]:
    """The sandboxes of this process; other tests may keep theirs open."""
    return set(root().glob(f"{os.getpid()}-*/v*"))


def test_the_files_to_write_are_taken_and_no_others(image_of: Callable[..., str]) -> None:
    """A new file and a changed one are the answer; what else the agent wrote is not."""
    script = (
        f"{RIGHT}; echo '// new' >> rtl/gate.v; echo x > rtl/other.v; mkdir src; echo x > src/a"
    )

    (found,) = attempt(image_of(script))

    assert found.files == {
        "rtl/top.v": "module top; endmodule\n",
        "rtl/gate.v": "module gate; endmodule\n// new\n",
    }
    assert found.notes["agent"]["exit"] == 0
    assert set(read_answer(RECORD, found).files) == set(found.files)


def test_an_agent_sees_the_problem_and_neither_harness_nor_host(
    image_of: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The protocol's files, no harness, no variable of this process, no network, no right."""
    monkeypatch.setenv("HOST_KEY", "secret-of-the-host")
    script = (
        "{ pwd; cat prompt.json; find /code /src -type f; cat /proc/1/environ; env;"
        " cat /proc/net/dev; grep CapEff /proc/self/status; grep -r HIDDEN /code /src /rundir; }"
        " > rtl/top.v 2>&1; true"
    )

    (found,) = attempt(image_of(script))

    told = (found.files or {})["rtl/top.v"]
    assert told.startswith('/code\n{"prompt": "Write rtl/top.v."}')
    assert "/code/docs/spec.md" in told
    assert "/code/rtl/gate.v" in told
    assert "secret-of-the-host" not in told
    assert "HIDDEN" not in told
    assert "test_top" not in told
    assert "eth0" not in told
    assert "CapEff:\t0000000000000000" in told


@pytest.mark.one_of(3, "bytearray")
@pytest.mark.parametrize(
    ("script", "why"),
    [
        (f"{RIGHT}; exit 3", "exit status 3"),
        (f"{RIGHT}; sh -c 'kill -SEGV $$'; exit $?", "exit status 139"),
        (f"{RIGHT}; {WAIT}", "stopped: time"),
        (f"{RIGHT}; trap '' TERM INT; while :; do :; done", "stopped: time"),
        (f"{RIGHT}; i=0; while :; do i=$((i+1)); head -c 9m /dev/zero > rundir/$i; done", "disk"),
        (f"{RIGHT}; i=0; while :; do i=$((i+1)); head -c 9m /dev/zero > /tmp/$i; done", "disk"),
        (
            f"{RIGHT}; cd rundir; for i in $(seq 50); do mkdir $(seq -f $i-%g 90); done; {WAIT}",
            "disk",
        ),
        (f"{RIGHT}; python3 -c 'a = bytearray(1 << 30)' || exit 9", "stopped: memory"),
    ],
)
def test_an_agent_that_crashes_or_takes_too_much_is_wrong(
    script: str, why: str, image_of: Callable[..., str]
) -> None:
    """As officially: the answer does not count, and it is an answer, not a failure of ours."""
    limit = {"disk": 100, "stopped: time": 3}.get(why, 30)
    (found,) = attempt(image_of(script), timeout_s=limit, disk_mb=16, memory_mb=256)

    assert why in found.notes["agent"]["why"]
    assert found.finish == "stop"
    assert found.files == {}
    assert not read_answer(RECORD, found).files


@pytest.mark.one_of(3, "mkfifo", "head -c 3m")
@pytest.mark.parametrize(
    "script",
    [
        "true",
        ": > rtl/top.v",
        "ln -s /etc/hostname rtl/top.v",
        "ln -s {secret} rtl/top.v",
        "rm -r rtl; ln -s {folder} rtl",
        "mkfifo rtl/top.v",
        "mkdir rtl/top.v",
        "head -c 3m /dev/zero > rtl/top.v",
        "rm -rf rtl docs verif rundir /code/* /bin/* 2>/dev/null; true",
        "chmod 000 rtl rundir; chmod 000 /code; true",
        "cd rundir; for i in $(seq 150); do p=d; for j in 1 2 3 4 5 6 7 8 9; do p=$p/d; done; "
        "mkdir -p $p; cd $p || exit 0; done",
    ],
)
def test_what_is_no_plain_file_is_no_answer(
    script: str, image_of: Callable[..., str], tmp_path: Path
) -> None:
    """Links to this machine's files, pipes, folders, nothing at all: wrong, and nothing leaks."""
    (tmp_path / "top.v").write_text("module secret_of_the_host; endmodule")
    (tmp_path / "gate.v").write_text("module secret_of_the_host; endmodule")
    script = script.format(secret=tmp_path / "top.v", folder=tmp_path)

    (found,) = attempt(image_of(script))

    assert not read_answer(RECORD, found).files
    assert "secret_of_the_host" not in str(found.files)


def test_an_agent_may_survive_the_end_of_a_process_of_its_own(
    image_of: Callable[..., str],
) -> None:
    """What counts is how the agent ends, not one of its tools that took too much memory."""
    (found,) = attempt(image_of(f"python3 -c 'a = bytearray(1 << 30)'; {RIGHT}"), memory_mb=256)

    assert found.files == {"rtl/top.v": "module top; endmodule\n"}


def test_processes_and_words_are_bounded(image_of: Callable[..., str]) -> None:
    """A fork bomb and endless output end with the agent's time; what is kept of it is short."""
    # a shell that cannot fork ends: only a subshell forks once the bomb has begun
    bomb = "yes '\x1b[2J' & f() { f | f & }; (f) & while :; do :; done"

    (found,) = attempt(image_of(bomb), timeout_s=5, processes=64)

    assert found.notes["agent"]["stopped"] == "time"
    assert 0 < len(found.completion) <= 20_000
    assert "\x1b" not in found.completion


def test_a_volume_of_the_image_has_a_limit(image_of: Callable[..., str], sim_image: str) -> None:
    """What an image declares as a volume is no folder of this machine: it is small and gone."""
    script = json.dumps(["/bin/sh", "-c", f"{RIGHT}; head -c 99m /dev/zero > /data/x || exit 7"])
    before = docker("volume", "ls", "-q")

    (found,) = attempt(image_of("", "VOLUME /data", f"ENTRYPOINT {script}"), disk_mb=16)

    assert found.notes["agent"]["why"].endswith("exit status 7")
    assert docker("volume", "ls", "-q") == before


@pytest.mark.parametrize("volume", ["/code", "/code/rtl", "/code/rtl/", "/code/rtl/below"])
def test_a_volume_may_lie_where_the_problem_does(volume: str, image_of: Callable[..., str]) -> None:
    """The problem's folders are there whatever the image declares."""
    script = json.dumps(["/bin/sh", "-c", f"grep -q gate rtl/gate.v && {RIGHT}"])

    (found,) = attempt(image_of("", f"VOLUME {volume}", f"ENTRYPOINT {script}"))

    assert found.files == {"rtl/top.v": "module top; endmodule\n"}


def test_a_container_that_somebody_removes_is_no_answer(image_of: Callable[..., str]) -> None:
    """Docker failing is infrastructure: the trajectory has finish "error", never reward 0."""
    image = image_of(f"{RIGHT}; sleep 100")
    running = f"docker ps -q --filter ancestor={image}"
    removes = f'until [ "$({running})" ]; do sleep 0.2; done; sleep 1; docker rm -f $({running})'
    with subprocess.Popen(["/bin/sh", "-c", removes], stdout=subprocess.DEVNULL):
        (found,) = attempt(image, timeout_s=60)

    assert found.finish == "error"
    assert found.error


def test_an_image_that_is_missing_or_cannot_start_is_a_prerequisite(
    image_of: Callable[..., str],
) -> None:
    """The image is named, whatever the number of problems."""
    with pytest.raises(PrerequisiteError, match="rlvr-no-such-agent"):
        attempt("rlvr-no-such-agent")
    with pytest.raises(PrerequisiteError, match="rlvr-test-agent"):
        attempt(image_of("", 'ENTRYPOINT ["/no/such/program"]'))


def test_containers_of_a_dead_process_are_swept(image_of: Callable[..., str]) -> None:
    """The next evaluation removes what a killed one left."""
    image = image_of(RIGHT)
    left = docker(
        "run", "-d", "--network", "none", "--label", f"{LABEL}={owner_prefix()}999999999",
        "--entrypoint", "sleep", image, "300",
    )  # fmt: skip

    attempt(image)  # finds no container of the image afterwards

    assert left not in docker("ps", "-aq", "--no-trunc")


def test_an_interrupted_evaluation_leaves_no_container(image_of: Callable[..., str]) -> None:
    """Ctrl-C ends the containers first."""
    image = image_of("sleep 300")

    async def work() -> None:
        context = BuildContext(model=f"agent:{image}", workers=2)
        async with AgentBackend(None, context) as backend:
            policy = await backend.policy()
            task = asyncio.create_task(policy.attempt(RECORD))
            while not docker("ps", "-q", "--filter", f"ancestor={image}"):
                await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(work())

    assert docker("ps", "-aq", "--filter", f"ancestor={image}") == ""


def test_another_task_is_refused(image_of: Callable[..., str]) -> None:
    """The protocol is CVDP's."""
    with pytest.raises(ConfigError, match="sampler agent"):
        attempt(image_of(RIGHT), problem=evolve(PROBLEM, payload=None))


def test_rlvr_eval_scores_an_agent_by_category(
    image_of: Callable[..., str], tmp_path: Path
) -> None:
    """`--model agent:IMAGE` is all it takes; the table and the file are as for any model."""
    row = json.loads(STARTER.read_text(encoding="utf-8").splitlines()[0])
    ((path, text),) = row["output"]["context"].items()
    (tmp_path / "one.jsonl").write_text(json.dumps(row))
    image = image_of(f"cat > {path} <<'END'\n{text}\nEND")
    words = ["eval", "--plugin", "cvdp", "--dataset", "one.jsonl", "--samples", "2"]
    words += ["--model", f"agent:{image}", "--split", "all", "--out", "s.jsonl", "--json"]

    done = run_rlvr(*words, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["pass_at"]["1"] == 1.0
    lines = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert [line["notes"]["agent"]["exit"] for line in lines] == [0, 0]
