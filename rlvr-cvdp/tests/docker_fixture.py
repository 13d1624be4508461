"""A Docker daemon, a root and an image for tests: what is there is used, else made once."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rlvr import PrerequisiteError
from rlvr.testing.tools import missing, require_tool
from rlvr_cvdp.images.daemon import docker_client
from rlvr_cvdp.images.image import build_image
from rlvr_cvdp.images.rootfs import build_rootfs

_DEBOOTSTRAP = "sudo apt-get install -y debootstrap"
_DOCKERD = "sudo apt-get install -y docker.io"


def answers() -> bool:
    """The daemon of `DOCKER_HOST` answers."""
    try:
        with docker_client():
            return True
    except PrerequisiteError:
        return False


@pytest.fixture(scope="session")
def rootfs() -> Path:
    """The root of `rlvr cvdp build-rootfs`, from the cache or built now (about a minute)."""
    try:
        return build_rootfs()[0]
    except PrerequisiteError as error:
        missing(str(error))
        raise


@pytest.fixture(scope="session")
def docker_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """
    Address of a Docker daemon, `DOCKER_HOST` set to it.

    One that answers is used; else root starts one, shared by all workers of this session.
    """
    if answers():
        yield os.environ.get("DOCKER_HOST", "")
        return
    require_tool("dockerd", _DOCKERD)
    if os.geteuid() != 0:
        missing("no Docker daemon answers, and only root can start one; try: sudo dockerd")
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with shared_daemon(shared) as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", address)
        yield address


@pytest.fixture(scope="session")
def sim_image(docker_daemon: str, rootfs: Path) -> str:
    """Name of the image of `rlvr cvdp build-image` in that daemon."""
    return build_image(root=rootfs)[0]


@contextmanager
def shared_daemon(shared: Path) -> Iterator[str]:
    """The first user starts the daemon, the last one stops it; a file counts them."""
    count, place = shared / "docker-users", shared / "docker-place"
    with _locked(shared):
        users = int(count.read_text()) if count.exists() else 0
        if not users:
            place.write_text(str(start_daemon()))
        count.write_text(str(users + 1))
    folder = Path(place.read_text())
    try:
        yield f"unix://{folder}/sock"
    finally:
        with _locked(shared):
            left = int(count.read_text()) - 1
            count.write_text(str(left))
            if not left:
                stop_daemon(folder)


def start_daemon(data: Path | None = None) -> Path:
    """Start a daemon with everything of its own in a new folder; its socket is `sock` there."""
    folder = Path(tempfile.mkdtemp(prefix="rlvr-docker-"))
    command = ["dockerd", "--bridge=none", "--iptables=false", "--ip6tables=false"]
    command += [f"--data-root={data or folder / 'data'}", f"--exec-root={folder}/exec"]
    command += [f"--pidfile={folder}/pid", f"--host=unix://{folder}/sock"]
    with (folder / "log").open("wb") as log:  # a child of nobody's: workers come and go
        subprocess.run(
            ["setsid", "--fork", *command], stdout=log, stderr=log, check=True, timeout=120
        )
    until = time.monotonic() + 60
    while time.monotonic() < until and "failed to start" not in _told(folder):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", f"unix://{folder}/sock")
            if answers():
                return folder
        time.sleep(0.2)
    words = _told(folder).splitlines()[-3:]
    stop_daemon(folder)
    missing(f"dockerd did not start: {' / '.join(words)}")
    raise AssertionError("unreachable: missing always raises")


def stop_daemon(folder: Path) -> None:
    """Stop the daemon of a folder and its containerd, wait for both and remove the folder."""
    for pid_file in ("pid", "exec/containerd/containerd.pid"):
        pid = daemon_pid(folder, pid_file)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM) if pid else None
        until = time.monotonic() + 30
        while pid and _runs(pid) and time.monotonic() < until:
            time.sleep(0.05)
    for line in Path("/proc").glob("[0-9]*/cmdline"):  # what held a container outlives its daemon
        with suppress(OSError):
            if f"{folder}/".encode() in line.read_bytes():
                os.kill(int(line.parent.name), signal.SIGKILL)
    # A daemon that was killed leaves mounts: its data folder upon itself, containers' networks.
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    leave = ["umount", *(place for place in reversed(mounts) if place.startswith(f"{folder}/"))]
    subprocess.run(leave, capture_output=True, check=False, timeout=120)
    shutil.rmtree(folder, ignore_errors=True)


def daemon_pid(folder: Path, pid_file: str = "pid") -> int:
    """Process id of the daemon of a folder, 0 where it never ran."""
    try:
        return int((folder / pid_file).read_text())
    except (OSError, ValueError):
        return 0


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _told(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "docker-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
