"""Sandboxes by Docker: containers of the simulator image, kept warm or made for one problem."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from rlvr import PrerequisiteError, VerifierError
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.images import recipe
from rlvr_cvdp.images.daemon import daemon_errors, docker_client, docker_failures
from rlvr_cvdp.images.probe import read_file, toolchain_of_image
from rlvr_cvdp.sandbox.base import Sandbox
from rlvr_cvdp.sandbox.confine.kernel_files import SHOWN, hidden_entries
from rlvr_cvdp.sandbox.confine.seccomp import docker_profile
from rlvr_cvdp.sandbox.folders.root import inside_folder, remove_folder
from rlvr_cvdp.sandbox.processes.process import SandboxProcess
from rlvr_cvdp.sandbox.records import MEGABYTE
from rlvr_cvdp.sandbox.worker import zygote_command, zygote_environment
from rlvr_cvdp.toolchain.cocotb_stacks import Stack, cache_dir
from rlvr_cvdp.toolchain.toolchain import Toolchain

if TYPE_CHECKING:
    import docker

log = structlog.get_logger()

LABEL = "rlvr.cvdp"
_ASKED = "answers were to be verified in Docker containers."


def open_docker(config: CvdpConfig, *, warm: int, workers: int) -> DockerSandbox:
    """
    The sandbox of `cvdp.sandbox=docker`.

    Raises:
        PrerequisiteError: No daemon answers, or it has no such image.
    """
    stack = ExitStack()
    client = stack.enter_context(docker_client(_ASKED))
    with stack:
        toolchain = toolchain_of_image(client, config.image or recipe.image_tag())
        return DockerSandbox(
            client, toolchain, config=config, warm=warm, workers=workers, close=stack.pop_all()
        )


class DockerSandbox(Sandbox):
    """
    Slots in containers.

    As the official runner has them, with less: no network, no capability, few system calls, a
    read-only root and /dev, little of /proc and no /sys, no variable that is not ours, the caller's
    user, limits on memory and processes.

    To be used once: leaving its `async with` closes the connection to the daemon. Each slot has a
    container of its own; nothing but the slot's folder is mounted from this machine. A container
    is used again after everything in it was killed and emptied.
    """

    name = "docker"

    def __init__(
        self, client: docker.DockerClient, toolchain: Toolchain, *, config: CvdpConfig,
        warm: int, workers: int, close: ExitStack,
    ) -> None:  # fmt: skip
        super().__init__(toolchain, warm=warm, workers=workers)
        self._client, self._config, self._close = client, config, close

    async def __aenter__(self) -> Sandbox:
        """Keep containers warm from now on; remove those of processes that are gone."""
        await asyncio.to_thread(sweep_containers, self._client, _ASKED)
        return await super().__aenter__()

    async def __aexit__(self, *error: object) -> None:
        """End all containers and close the connection to the daemon."""
        try:
            await super().__aexit__(*error)
        finally:
            self._close.close()

    async def _launch(self, folder: Path, stack: Stack) -> SandboxProcess:
        container = await _unbroken(asyncio.to_thread(self._run, folder, stack))
        return await asyncio.to_thread(_ContainerProcess, container)

    def _run(self, folder: Path, stack: Stack) -> Any:
        command = ["-c", 'mkdir -p /rundir/harness; exec "$@"', "rlvr"]
        try:
            image = self._client.images.get(self.toolchain.name.removeprefix("image "))
            # None takes a variable of the image away; the proxies of Docker's own settings, which
            # may hold a password, are not handed on.
            given = [entry.partition("=")[0] for entry in image.attrs["Config"]["Env"] or ()]
            made = self._client.api.create_container(
                image.id,
                [*command, *zygote_command(stack)],
                entrypoint=["/bin/sh"],
                environment={**dict.fromkeys(given), **zygote_environment(stack)},
                use_config_proxy=False,
                hostname="sandbox",
                user=f"{os.getuid()}:{os.getgid()}",
                working_dir="/code/rundir",
                labels={LABEL: f"{owner_prefix()}{os.getpid()}"},
                host_config=self._host_config(folder, stack),
            )
            container = self._client.containers.get(made["Id"])
            try:
                container.start()
            except BaseException:
                container.remove(force=True)
                raise
            return container
        except docker_failures(OSError) as error:
            words = str(getattr(error, "explanation", None) or error)
            raise VerifierError(f"a container could not be started: {words[-400:]}") from None

    def _host_config(self, folder: Path, stack: Stack) -> dict[str, Any]:
        config, size = self._config, f"size={self._config.disk_mb * MEGABYTE}"
        host: dict[str, Any] = self._client.api.create_host_config(
            network_mode="none",
            cgroupns="private",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges", f"seccomp={docker_profile()}"],
            pids_limit=config.processes,
            # Room for two processes at their own limit: a container that is full is killed,
            # and that would read as a failure of the machine.
            mem_limit=f"{2 * config.memory_mb}m",
            memswap_limit=f"{2 * config.memory_mb}m",
            tmpfs={
                "/tmp": size,
                "/rundir": f"{size},mode=1777",
                "/rlvr/run": "size=1m,mode=1777",
                "/dev": "ro,dev,mode=755,size=64k",
                "/dev/shm": f"{size},mode=1777",
            },
            binds=self._volumes(folder, stack),
        )
        hidden = [*hidden_entries(), "/sys", "/dev/pts"]
        return {**host, "MaskedPaths": hidden, "ReadonlyPaths": [f"/proc/{n}" for n in SHOWN]}

    def _volumes(self, folder: Path, stack: Stack) -> list[str]:
        tools = self.toolchain.covered()
        inside = inside_folder(os.getpid(), str(stack.python))
        tree = folder / "tree"
        volumes = [f"{tree}:/code", f"{tree}/src:/code/src:ro", f"{tree}/src:/src:ro"]
        volumes += [f"{folder}/out:/rlvr/out", f"{folder}/control:/rlvr/control:ro"]
        # Docker writes this machine's name servers and names there.
        volumes += [f"{inside}/empty:/etc/{n}:ro" for n in ("resolv.conf", "hosts", "hostname")]
        volumes += [f"{folder}/{name}:/rlvr/{name}:ro" for name in ("answer", "allowed")]
        volumes += [f"{inside}/{name}:/rlvr/{name}:ro" for name in ("bin", "python", "scan.py")]
        volumes.append(f"{self._real_tools(tools)}:/rlvr/real:ro")
        volumes += [f"{inside}/bin/{name}:{tool}:ro" for name, tool in tools.items()]
        return volumes

    def _real_tools(self, tools: dict[str, str]) -> Path:
        """The image's own tools, copied out once: our scripts lie over their places inside."""
        digest = self.toolchain.digest.rpartition(":")[2][:24]
        folder = cache_dir() / "images" / f"real-{len(tools)}-{digest}"
        if folder.is_dir():
            return folder
        partial = folder.with_name(f"{folder.name}.{os.getpid()}")
        partial.mkdir(parents=True, exist_ok=True)
        container = self._client.containers.create(self.toolchain.name.removeprefix("image "))
        try:
            for name, path in tools.items():
                (partial / name).write_bytes(read_file(container, path))
                (partial / name).chmod(0o755)
            for place, leads in self.toolchain.companions().items():
                (partial / place).symlink_to(leads)
        finally:
            container.remove(force=True)
        try:
            partial.rename(folder)
        except OSError:  # another process was faster
            remove_folder(partial)
        return folder


def owner_prefix() -> str:
    """What `LABEL` has before the owner's process id: where a process of that id would be seen."""
    seen = os.stat("/proc/self/ns/pid").st_ino, os.getuid()  # with hidepid, one's own alone
    return f"{socket.gethostname()}-{seen[0]}-{seen[1]}-"


def sweep_containers(client: docker.DockerClient, asked: str) -> None:
    """Remove containers of processes of this machine that are gone; others may end meanwhile."""
    from docker.errors import NotFound

    prefix, ours = owner_prefix(), {"label": LABEL}
    try:
        for container in client.containers.list(all=True, filters=ours, ignore_removed=True):
            pid = str(container.labels.get(LABEL)).removeprefix(prefix)
            if pid.isdecimal() and not Path("/proc", pid).exists():
                with suppress(NotFound):
                    container.remove(force=True, v=True)
    except docker_failures() as error:
        raise PrerequisiteError(f"{asked}\n  found: the daemon failed: {error}") from None


class _ContainerProcess(SandboxProcess):
    """A container as the process of a worker."""

    def __init__(self, container: Any) -> None:
        self._container = container
        with daemon_errors(_ASKED):
            container.reload()
        self.pid = int(container.attrs["State"]["Pid"])

    def is_crowded(self, most: int) -> bool:
        """Never: a container has no more processes than it may have."""
        return False

    async def ended(self) -> str:
        """Wait for its end; gives the end of its log."""
        while True:
            words = await asyncio.to_thread(self._last_words)
            if words:
                return words
            await asyncio.sleep(0.3)

    def _last_words(self) -> str:
        """What it said last where it has ended, "" while it runs."""
        try:
            self._container.reload()
            if self._container.status == "running":
                return ""
            words = self._container.logs(tail=20).decode(errors="replace").strip()
            return words or "the container ended"
        except docker_failures(OSError) as error:
            return f"the Docker daemon stopped answering: {error}"

    async def kill(self) -> None:
        """Kill and remove the container."""
        await _unbroken(asyncio.to_thread(self._remove))

    def _remove(self) -> None:
        try:
            self._container.remove(force=True)
        except docker_failures(OSError) as error:
            log.warning("container_not_removed", id=self._container.short_id, error=str(error))


async def _unbroken(work: Any) -> Any:
    """Finish what a thread does, also where we are cancelled meanwhile: no container is lost."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        result = await task
        if result is not None:
            await asyncio.to_thread(result.remove, force=True)
        raise
