"""One run of an agent's container: no network, no capability, nothing of the host, limits."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import structlog
from attrs import frozen

from rlvr import PrerequisiteError, RlvrError, VerifierError
from rlvr_cvdp.agents.config import AgentConfig
from rlvr_cvdp.agents.workspace import FOLDERS, PROMPT
from rlvr_cvdp.images.daemon import docker_failures
from rlvr_cvdp.sandbox.docker import LABEL, owner_prefix
from rlvr_cvdp.sandbox.processes.accounting import size_over
from rlvr_cvdp.sandbox.records import MEGABYTE

log = structlog.get_logger()

LOG_LINES = 200
LOG_CHARACTERS = 20_000
_LOOK_S = 0.3
_SIZE_S = 2.0


@frozen(kw_only=True)
class Ran:
    """
    How an agent's container ended.

    Attributes:
        exit: Its exit status; None where it was stopped.
        stopped: What it was stopped for: "time", "disk", "memory"; "" where it ended itself.
        seconds: Wall time.
        log: The end of what it printed, without control characters.
    """

    exit: int | None
    stopped: str
    seconds: float
    log: str

    @property
    def why(self) -> str:
        """Why its answer does not count, "" if it does: as officially, only after exit status 0."""
        if self.stopped:
            return f"the agent was stopped: {self.stopped}"
        return f"the agent ended with exit status {self.exit}" if self.exit else ""


def run_agent(
    client: Any, image: Any, folder: Path, config: AgentConfig, stop: threading.Event
) -> Ran:
    """
    Run an agent on a workspace until it ends, is stopped, or `stop` is set.

    Raises:
        PrerequisiteError: The image cannot be started at all.
        VerifierError: Docker failed: this says nothing about the agent.
    """
    with _docker_errors(), _container(client, image, folder, config) as container:
        begun = time.monotonic()
        _start(container, image)
        stopped = _watched(client, container, folder, config, begun, stop)
        if stopped:
            with suppress(Exception):  # it may have ended just now; removing it ends it anyway
                container.kill()
        container.reload()
        state = container.attrs["State"]
        if not stopped and state.get("OOMKilled") and state["ExitCode"]:
            stopped = "memory"
        return Ran(
            exit=None if stopped else int(state["ExitCode"]),
            stopped=stopped,
            seconds=time.monotonic() - begun,
            log=_tail(container),
        )


def _watched(
    client: Any,
    container: Any,
    folder: Path,
    config: AgentConfig,
    begun: float,
    stop: threading.Event,
) -> str:
    """Wait for its end; the reason to stop it, "" if it ended itself."""
    sized = 0.0
    while True:
        container.reload()
        if container.status not in ("running", "created"):
            return ""
        now = time.monotonic()
        if stop.is_set():
            return "interrupted"
        if now - begun > config.timeout_s:
            return "time"
        if now - sized > _SIZE_S:
            sized = now
            limit = config.disk_mb * MEGABYTE
            if size_over(folder, limit) or _own_size(client, container) > limit:
                return "disk"
        stop.wait(min(_LOOK_S, max(0.01, begun + config.timeout_s - now)))


def _own_size(client: Any, container: Any) -> int:
    """Bytes that it wrote to its own files, outside of /code."""
    found = client.api.containers(all=True, size=True, filters={"id": container.id})
    return int(found[0].get("SizeRw") or 0) if found else 0


@contextmanager
def _container(client: Any, image: Any, folder: Path, config: AgentConfig) -> Iterator[Any]:
    from docker.types import LogConfig, Ulimit

    size = config.disk_mb * MEGABYTE
    mounted = {f"/code/{name}": "rw" for name in FOLDERS} | {f"/code/{PROMPT}": "ro"}
    volumes = [f"{folder}/{Path(p).name}:{p}:{mode}" for p, mode in mounted.items()]
    # A volume that the image declares would be a folder of this machine without a limit.
    declared = (image.attrs.get("Config") or {}).get("Volumes") or {}
    container = client.containers.create(
        image.id,
        network_mode=config.network,
        use_config_proxy=False,  # it may hold a password
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        user=f"{os.getuid()}:{os.getgid()}",
        working_dir="/code",
        pids_limit=config.processes,
        mem_limit=f"{config.memory_mb}m",
        memswap_limit=f"{config.memory_mb}m",
        ulimits=[Ulimit(name="fsize", soft=size, hard=size), Ulimit(name="core", soft=0, hard=0)],
        log_config=LogConfig(type="json-file", config={"max-size": "1m", "max-file": "1"}),
        tmpfs={p: f"size={size}" for p in declared if p.rstrip("/") not in mounted},
        volumes=volumes,
        labels={LABEL: f"{owner_prefix()}{os.getpid()}"},
    )
    try:
        yield container
    finally:
        try:
            container.remove(force=True, v=True)
        except Exception as error:  # the daemon is gone; the next process sweeps
            log.warning("container_not_removed", id=container.short_id, error=str(error))


def _start(container: Any, image: Any) -> None:
    from docker.errors import APIError

    try:
        container.start()
    except APIError as error:
        raise PrerequisiteError(
            f"the agent image {', '.join(image.tags) or image.short_id} was to be run.",
            f"found: Docker cannot start it: {str(error.explanation or error)[-300:]}",
            "try it by hand: docker run --rm --network none IMAGE",
        ) from None


def _tail(container: Any) -> str:
    words = container.logs(tail=LOG_LINES).decode(errors="replace")[-LOG_CHARACTERS:]
    return "".join(c for c in words if c in "\n\t" or c.isprintable())


@contextmanager
def _docker_errors() -> Iterator[None]:
    try:
        yield
    except RlvrError:  # a PrerequisiteError is an OSError too
        raise
    except docker_failures(OSError) as error:
        words = str(getattr(error, "explanation", None) or error)
        raise VerifierError(f"an agent's container could not be run: {words[-300:]}") from None
