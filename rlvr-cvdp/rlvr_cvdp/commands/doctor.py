"""Checks of the machine, for `rlvr doctor` and the start of a run. Each fix is a command."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from rlvr import (
    BuildContext,
    CheckResult,
    PrerequisiteError,
    Problem,
    RlvrError,
    Trajectory,
    pip_install,
)
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.images import recipe
from rlvr_cvdp.images.daemon import docker_client, start_command
from rlvr_cvdp.images.image import find_image
from rlvr_cvdp.images.probe import toolchain_of_root
from rlvr_cvdp.images.rootfs import build_command, built_rootfs
from rlvr_cvdp.task import CvdpTask
from rlvr_cvdp.toolchain import cocotb_stacks
from rlvr_cvdp.toolchain.tools import find_tool, install_command, tool_version
from rlvr_cvdp.verify.reward import CvdpReward

_NAMESPACES = {"unprivileged_userns_clone": "1", "apparmor_restrict_unprivileged_userns": "0"}
"""Settings of Debian's and Ubuntu's kernels with which anybody may make namespaces."""
_OFFICIAL = (
    "official_examples/cvdp_v1.1.0_example_{kind}_code_generation"
    "_no_commercial_with_solutions.jsonl"
)
_KINDS = ("nonagentic", "agentic")


def _allow_namespaces(kernel: Path = Path("/proc/sys/kernel")) -> str:
    """What lets bubblewrap make namespaces on this machine."""
    for name, wanted in _NAMESPACES.items():
        setting = kernel / name
        if setting.is_file() and setting.read_text().strip() != wanted:
            return f"sudo sysctl -w kernel.{name}={wanted}"
    return "run outside of the container or chroot, or in a privileged one, or with Docker"


def bubblewrap() -> CheckResult:
    """Bubblewrap is there and may make namespaces."""
    path = find_tool("bwrap")
    if path is None:
        return CheckResult(ok=False, found="no bwrap on PATH", fix=install_command("bwrap"))
    command = [str(path), "--unshare-all", "--ro-bind", "/usr", "/usr"]
    for name in ("lib", "lib64"):
        command += ["--symlink", f"usr/{name}", f"/{name}"]
    try:
        tried = subprocess.run(
            [*command, "/usr/bin/true"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return CheckResult(ok=False, found=f"bwrap does not run: {error}", fix=_allow_namespaces())
    if tried.returncode:
        return CheckResult(
            ok=False, found=f"no sandbox: {tried.stderr.strip()}", fix=_allow_namespaces()
        )
    return CheckResult(ok=True, found=f"bubblewrap {tool_version(path)}")


def iverilog() -> CheckResult:
    """Icarus Verilog 11 or later."""
    found = _tool("iverilog")
    if found.ok and find_tool("vvp") is None:
        return CheckResult(ok=False, found="iverilog without vvp", fix=install_command("iverilog"))
    number = found.found.rpartition(" ")[2].partition(".")[0]
    if found.ok and number.isdecimal() and int(number) < 11:
        words = f"{found.found}, needed: 11"
        return CheckResult(ok=False, found=words, fix=install_command("iverilog"))
    return found


def _tool(name: str) -> CheckResult:
    path = find_tool(name)
    if path is None:
        return CheckResult(ok=False, found=f"no {name} on PATH", fix=install_command(name))
    return CheckResult(ok=True, found=f"{name} {tool_version(path)}")


verilator, yosys = partial(_tool, "verilator"), partial(_tool, "yosys")


def libpython() -> CheckResult:
    """This Python's shared library."""
    found = cocotb_stacks.libpython()
    if found is None:
        fix = f"sudo apt-get install -y libpython{sys.version_info[0]}.{sys.version_info[1]}"
        return CheckResult(ok=False, found="no shared libpython for this Python", fix=fix)
    return CheckResult(ok=True, found=str(found))


def cocotb2() -> CheckResult:
    """A stack with cocotb 2.0: this environment, or a managed one."""
    stack = cocotb_stacks.running_stack() or cocotb_stacks.managed_stack(2)
    if stack is None:
        return CheckResult(ok=False, found="no cocotb 2.0 with pytest", fix="rlvr cvdp setup")
    return CheckResult(ok=True, found=stack.name)


def cocotb1() -> CheckResult:
    """The managed stack with cocotb 1.9."""
    stack = cocotb_stacks.managed_stack(1)
    if stack is None:
        found = "not made yet (it is made at first need)"
        return CheckResult(ok=False, found=found, fix="rlvr cvdp setup")
    return CheckResult(ok=True, found=stack.name)


def rootfs() -> CheckResult:
    """The root for the bubblewrap sandbox was built."""
    root = built_rootfs()
    if root is None:
        wanted = recipe.rootfs_dir()
        return CheckResult(ok=False, found=f"none at {wanted}", fix=build_command(wanted))
    return CheckResult(
        ok=True, found=f"{root}: iverilog {toolchain_of_root(root).versions['iverilog']}"
    )


def docker() -> CheckResult:
    """A Docker daemon answers and has the image."""
    tag = recipe.image_tag()
    try:
        with docker_client() as client:
            version = client.version()["Version"]
            found = find_image(client, tag)
    except PrerequisiteError as error:
        words = str(error).splitlines()
        return CheckResult(ok=False, found=words[1].strip(), fix=start_command())
    if found is None:
        return CheckResult(
            ok=False, found=f"Docker {version} without {tag}", fix="rlvr cvdp build-image"
        )
    return CheckResult(ok=True, found=f"Docker {version}, {tag}")


def proof() -> CheckResult:
    """Right answers to two problems pass and an empty answer fails, in a few seconds."""
    try:
        return asyncio.run(_proof())
    except RlvrError as error:
        return CheckResult(ok=False, found=str(error), fix="first what else is missing here")


async def _proof() -> CheckResult:
    config = CvdpConfig(timeout_s=30.0)
    seen = []
    for task, reward, problem in _examples(config):
        right = task.reference(problem)
        assert right is not None  # `_examples` gives none without
        answers = [(right, 1.0)]
        for text in ("\n", "module nothing;\nendmodule\n"):
            files = dict.fromkeys(problem.payload.targets, text)
            answers.append((Trajectory(problem_id=problem.id, files=files), 0.0))
        for trajectory, wanted in answers:
            outcome = await reward(problem, trajectory)
            if outcome.score01 != wanted:
                why = outcome.evidence.get("why")
                found = f"{problem.id}: score {outcome.score01} instead of {wanted} ({why})"
                return CheckResult(ok=False, found=found, fix="rlvr cvdp setup")
        seen.append(problem.id)
    if not seen:
        fix = pip_install("rlvr-cvdp", reinstall=True)
        return CheckResult(ok=False, found="no example to try", fix=fix)
    return CheckResult(ok=True, found=f"{', '.join(seen)}: right passes, empty and wrong fail")


def data_dir() -> Path | None:
    """The CVDP data of `$RLVR_DATA`, or of `../shared/data` beside the project; None without."""
    given = os.environ.get("RLVR_DATA")
    folder = (Path(given) if given else Path.cwd().parent / "shared" / "data") / "cvdp"
    return folder if folder.is_dir() else None


def _examples(config: CvdpConfig) -> Iterator[tuple[CvdpTask, CvdpReward, Problem]]:
    """The two official examples where the data are there, else two starter problems."""
    data = data_dir()
    paths = [data / _OFFICIAL.format(kind=kind) for kind in _KINDS] if data else []
    official = [path for path in paths if path.is_file()]
    choices: list[Path | None] = [*official] or [None]
    for path in choices:
        context = BuildContext(dataset=path)
        task, reward = CvdpTask(config, context), CvdpReward(config, context)
        solved = [p for p in task.problems("all") if task.reference(p) is not None]
        yield from ((task, reward, p) for p in ([*solved[:1], *solved[1:][-1:]]))
