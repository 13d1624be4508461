"""The Docker daemon: reaching it, and saying plainly what is wrong with it."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr import PrerequisiteError, RlvrError

if TYPE_CHECKING:
    import docker

_TIMEOUT_S = 600
_SOCKET = "unix:///var/run/docker.sock"


@contextmanager
def docker_client(asked: str = "a Docker daemon was needed.") -> Iterator[docker.DockerClient]:
    """
    A client of the daemon that `DOCKER_HOST` names, by default the local one; closed at the end.

    Raises:
        PrerequisiteError: No daemon answers, or it went away or failed inside the block.
    """
    import docker
    from docker.errors import DockerException

    with daemon_errors(asked):
        try:
            _knock()
            client = docker.from_env(timeout=_TIMEOUT_S)
        except (DockerException, OSError) as error:
            raise _unreachable(asked, error) from None
        try:
            try:
                client.ping()
            except (DockerException, OSError) as error:
                raise _unreachable(asked, error) from None
            yield client
        finally:
            client.close()


def docker_failures(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """What the docker package raises where the daemon refuses, fails or has gone, and `more`."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    return (DockerException, RequestException, HTTPError, ConnectionError, *more)


@contextmanager
def daemon_errors(asked: str) -> Iterator[None]:
    """
    Turn what the docker package raises into one error of ours.

    Raises:
        PrerequisiteError: The daemon stopped, its disk is full, or it refused.
    """
    from docker.errors import APIError

    try:
        yield
    except RlvrError:
        raise
    except APIError as error:
        told = str(error.explanation or error).strip()
        raise daemon_failure(asked, told) from None
    except docker_failures() as error:
        found = f"found: the Docker daemon stopped answering ({_cause(error)})"
        raise PrerequisiteError(asked, found, f"try: {start_command()}") from None


def _knock() -> None:
    """Connect once by hand: the docker package leaks the socket of a refused connection."""
    scheme, _, path = os.environ.get("DOCKER_HOST", _SOCKET).partition("://")
    if scheme == "unix":
        with socket.socket(socket.AF_UNIX) as tried:
            tried.settimeout(20)
            tried.connect(path)


def start_command() -> str:
    """The command that starts a daemon here, or that installs one."""
    if shutil.which("dockerd") is None and "DOCKER_HOST" not in os.environ:
        return "sudo apt-get install -y docker.io"
    if Path("/run/systemd/system").is_dir():
        return "sudo systemctl start docker"
    return "sudo dockerd --bridge=none --iptables=false &"


def daemon_failure(asked: str, told: str) -> PrerequisiteError:
    """The error for what a daemon reports, at once or in the middle of a build or an import."""
    if "no space left" in told.lower():
        found = f"found: the disk of the Docker daemon is full ({told})"
        return PrerequisiteError(asked, found, "try: docker system prune")
    found = f"found: the Docker daemon said: {told}"
    return PrerequisiteError(asked, found, "its log says more: journalctl -u docker")


def _unreachable(asked: str, error: Exception) -> PrerequisiteError:
    where = os.environ.get("DOCKER_HOST", _SOCKET)
    cause = _cause(error)
    do = f"try: {start_command()}"
    if "DOCKER_HOST" in os.environ:
        do += "   (or unset DOCKER_HOST, which names that place)"
    if "ermission" in cause:
        do = "try: sudo usermod -aG docker $USER   (then log in again)"
    return PrerequisiteError(asked, f"found: no daemon at {where} ({cause})", do)


def _cause(error: BaseException) -> str:
    """The innermost reason, as the operating system calls it."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        inner = [a for a in seen.args if isinstance(a, BaseException)]
        seen = inner[0] if inner else seen.__cause__ or seen.__context__
    return str(error)
