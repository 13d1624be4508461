"""What happens to the verifier is never a verdict: full disks, daemons that stop, shared stores."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from docker.errors import NotFound

from rlvr import PrerequisiteError, RlvrError, Trajectory, VerifierError
from rlvr_cvdp.images.daemon import docker_client
from rlvr_cvdp.sandbox.docker import LABEL, owner_prefix, sweep_containers
from rlvr_cvdp.sandbox.folders.root import make_slot_folder
from rlvr_cvdp.sandbox.worker import Worker

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator")]

SCORE = [sys.executable, "-m", "rlvr.cli.main", "score", "--plugin", "cvdp", "--rootfs", "host"]


def _files(bench, folder: Path, text: str) -> list[str]:
    dataset = bench.dataset(bench.row())
    answers = folder / "answers.jsonl"
    record = {"id": "cvdp_copilot_inc_0001", "files": {"rtl/inc.sv": text}}
    answers.write_text(json.dumps(record) + "\n")
    return ["--dataset", str(dataset), "--completions", str(answers)]


def _score_on(disk: Path, size: int, words: list[str], **environ: str):
    """`rlvr score` where `disk` is a file system of this many bytes."""
    disk.mkdir()
    return subprocess.run(
        [
            "bwrap",
            "--dev-bind",
            "/",
            "/",
            "--size",
            str(size),
            "--tmpfs",
            str(disk),
            *SCORE,
            *words,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environ},
    )


def test_on_a_full_disk_nothing_is_judged(bench, tmp_path):
    """A failing answer says nothing where the disk is full: exit 5, no reward, the disk named."""
    files = _files(bench, tmp_path, bench.right.replace("8'd1", "8'd2"))
    words = [*files, "verify.store=off", "cvdp.warm=0"]
    done = _score_on(tmp_path / "disk", 3_000_000, words, TMPDIR=str(tmp_path / "disk"))
    assert done.returncode == 5, done.stdout + done.stderr
    verdict = json.loads(done.stdout.splitlines()[0])
    assert verdict["reward"] is None
    assert "the disk is full" in verdict["error"]
    assert "TMPDIR" in verdict["error"]


def test_a_store_on_a_full_disk_loses_no_verdict(bench, tmp_path):
    """A verdict that cannot be kept is still given."""
    disk = tmp_path / "disk"
    files = _files(bench, tmp_path, bench.right)
    done = _score_on(disk, 90_112, [*files, f"verify.store={disk}/verdicts.sqlite"])
    if done.returncode == 2:  # not even an empty store fits: said before any work
        assert "verdict store" in done.stderr
        return
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[0])["reward"] == 1.0


@pytest.mark.thorough
def test_two_runs_share_one_store(bench, tmp_path):
    """Two processes judge the same answers into one new store at once: both finish, each right."""
    store = f"verify.store={tmp_path}/verdicts.sqlite"
    files = _files(bench, tmp_path, bench.right)
    answers = tmp_path / "answers.jsonl"
    line = answers.read_text()
    answers.write_text("".join(line.replace("8'd1;", f"8'd1; // {n}") for n in range(6)))
    both = [
        subprocess.Popen([*SCORE, *files, store], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    for process in both:
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err.decode()
        assert [json.loads(x)["reward"] for x in out.decode().splitlines()[:6]] == [1.0] * 6
    again = subprocess.run(
        [*SCORE, *files, store], capture_output=True, text=True, check=True, timeout=240
    )
    assert all(json.loads(line)["cached"] for line in again.stdout.splitlines()[:6])


def test_a_container_that_goes_while_others_look_is_none_of_theirs(sim_image):
    """Another run's container ends between a list and the look at it: the sweep goes on."""
    with docker_client() as client:
        make = partial(client.api.create_container, sim_image, "true")
        dead = make(labels={LABEL: f"{owner_prefix()}999999999"})["Id"]
        gone = make(labels={LABEL: "elsewhere-1"})["Id"]
        inspect = client.api.inspect_container

        def inspected(container):
            if container == gone:  # before it is looked at, the other before it is removed
                client.api.remove_container(gone)
            found = inspect(container)
            if container == dead:
                with suppress(NotFound):  # another run's sweep may be as quick
                    client.api.remove_container(dead)
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client.api, "inspect_container", inspected)
            sweep_containers(client, "a test")
        left = {each["Id"] for each in client.api.containers(all=True)}
        assert not {dead, gone} & left


@pytest.mark.parametrize("other", ["user", "host", "namespace"])
def test_processes_that_are_not_seen_from_here_keep_their_containers(other, monkeypatch):
    """Of another user (`hidepid`), host or container, however like ours its process ids are."""
    here = owner_prefix()
    with monkeypatch.context() as patch:
        if other == "user":
            patch.setattr(os, "getuid", lambda: 12345)
        elif other == "host":
            patch.setattr("socket.gethostname", lambda: "elsewhere")
        else:
            stat = os.stat("/proc/self/ns/mnt")
            patch.setattr(os, "stat", lambda path: stat)
        there = owner_prefix()
    removed = []

    def container(owner):
        labels = {LABEL: f"{owner}999999999"}
        return SimpleNamespace(labels=labels, remove=lambda **_: removed.append(owner))

    found = SimpleNamespace(list=lambda **_: [container(there), container(here)])
    sweep_containers(SimpleNamespace(containers=found), "a test")
    assert removed == [here]


@contextmanager
def _relayed(daemon: str, place: Path) -> Iterator[Callable[[], None]]:
    """A socket that leads to a Docker daemon until what it yields is called: then it is gone."""
    listener, ends = socket.socket(socket.AF_UNIX), []
    listener.bind(str(place))
    listener.listen()

    def copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                here, there = listener.accept()[0], socket.socket(socket.AF_UNIX)
                ends.extend((here, there))
                there.connect(daemon.removeprefix("unix://"))
                for pair in ((here, there), (there, here)):
                    threading.Thread(target=copy, args=pair, daemon=True).start()

    def stop() -> None:
        place.unlink(missing_ok=True)
        for end in (listener, *ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=serve, daemon=True).start()
    yield stop
    stop()
    for end in (listener, *ends):
        end.close()


# docker's client leaves the socket open that a daemon which is gone refuses
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_docker_daemon_that_stops_in_the_middle_is_no_verdict(
    bench, sim_image, tmp_path, monkeypatch
):
    """The answer that was being judged could not be judged, nor the next."""
    daemon = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    problem = bench.problem()
    loop = bench.right.replace("endmodule", "initial forever begin end\nendmodule")
    endless = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": loop})
    right = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": bench.right})

    async def stop_it(stop: Callable[[], None]) -> tuple[str, list[type[BaseException]]]:
        seen = []
        options = {"sandbox": "docker", "image": sim_image, "warm": 1, "timeout_s": 60.0}
        async with bench.reward(**options) as reward:
            assert (await reward(problem, right)).score01 == 1.0
            inside = reward._sandbox._waiting[0]._process
            task = asyncio.create_task(reward(problem, endless))
            await asyncio.sleep(0.5)
            stop()
            os.kill(inside.pid, signal.SIGKILL)  # its containers end with a daemon
            for answer in (task, reward(problem, right)):
                try:
                    await answer
                except RlvrError as error:
                    seen.append(type(error))
        return inside._container.id, seen

    with _relayed(daemon, tmp_path / "sock") as stop, monkeypatch.context() as patch:
        patch.setenv("DOCKER_HOST", f"unix://{tmp_path}/sock")
        left, seen = asyncio.run(stop_it(stop))
        with warnings.catch_warnings():  # the docker package forgets sockets of a daemon that died
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    assert len(seen) == 2
    assert set(seen) <= {VerifierError, PrerequisiteError}
    with docker_client() as client:
        client.api.remove_container(left, force=True)


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("said", [b"", b"ready"])
def test_a_start_that_is_cancelled_keeps_no_connection(turns, said, tmp_path):
    """At whatever moment: the worker that called is hung up on, and no socket stays open."""
    folder = tmp_path / "slot"
    make_slot_folder(folder)

    async def start(caller):
        worker = Worker(folder, None, on_close=lambda: None)
        process = SimpleNamespace(ended=asyncio.Event().wait, kill=partial(asyncio.sleep, 0))
        attaching = asyncio.create_task(worker.attach(process))
        await asyncio.sleep(0)
        caller.connect(str(folder / "control" / "socket"))
        caller.sendall(said)
        for _ in range(turns):
            await asyncio.sleep(0)
        if not attaching.done():
            attaching.cancel()
        await asyncio.gather(attaching, return_exceptions=True)
        await worker.close()

    with warnings.catch_warnings(), socket.socket(socket.AF_UNIX) as caller:
        warnings.simplefilter("error")
        asyncio.run(start(caller))
        gc.collect()
        caller.settimeout(5)
        with suppress(ConnectionResetError):
            assert caller.recv(100) == b""
