"""
The plain way to verify: each service as one fresh process in a fresh bubblewrap sandbox.

No compile gate, no early stop, no checks of its own, no process that is kept. Otherwise it has
what the verifier has, so that the difference is the verifier's: the same tools, bytecode that is
already there, no plugins of pytest that the environment happens to hold, no rewriting of
assertions, the same seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from judging.answers import Answer
from judging.ours import config_of
from rlvr_cvdp.problem import CvdpProblem, Service
from rlvr_cvdp.sandbox import open_sandbox
from rlvr_cvdp.toolchain.cocotb_stacks import Stack, compile_once
from rlvr_cvdp.toolchain.toolchain import Toolchain
from rlvr_cvdp.toolchain.tools import require_tool

_ROOT = "rootfs "


@frozen(kw_only=True)
class PlainVerdict:
    """Whether every service exited with 0, what the first other one said, and the seconds."""

    is_right: bool
    why: str
    seconds: float


async def judge_plainly(
    answers: Sequence[Answer],
    *,
    workers: int,
    options: Mapping[str, Any] | None = None,
    seed: str = "1",
) -> list[PlainVerdict]:
    """Judge the answers, `workers` at a time, with the tools that our bubblewrap sandbox has."""
    config = config_of({**(options or {}), "sandbox": "bubblewrap"})
    toolchain = open_sandbox(config).toolchain
    slots = asyncio.Semaphore(workers)

    async def one(answer: Answer) -> PlainVerdict:
        async with slots:
            return await _judge(answer, toolchain, config.timeout_s, seed)

    return list(await asyncio.gather(*(one(answer) for answer in answers)))


async def _judge(answer: Answer, toolchain: Toolchain, timeout_s: float, seed: str) -> PlainVerdict:
    begun = time.monotonic()
    problem: CvdpProblem = answer.problem.payload
    stack = toolchain.stack_for(problem)
    if toolchain.is_host:
        compile_once(stack.site_packages)
    why = ""
    with tempfile.TemporaryDirectory(prefix="rlvr-plain-", ignore_cleanup_errors=True) as folder:
        tree = Path(folder)
        _write(tree, problem, answer)
        for service in problem.services:
            rc, output = await _run(_argv(tree, service, toolchain, stack, seed), timeout_s)
            if rc != 0:
                why = why or f"{service.name} exited with {rc}: {_telling(output)}"
    return PlainVerdict(is_right=not why, why=why, seconds=time.monotonic() - begun)


def _write(tree: Path, problem: CvdpProblem, answer: Answer) -> None:
    for name in ("rtl", "verif", "docs", "src", "rundir"):
        (tree / name).mkdir()
    for files in (problem.context, answer.files, problem.harness):
        for path, text in files.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text, encoding="utf-8")


def _argv(tree: Path, service: Service, toolchain: Toolchain, stack: Stack, seed: str) -> list[str]:
    src = str(tree / "src")
    mounts = [*_tools_mounts(toolchain, stack), "--bind", str(tree), "/code"]
    mounts += ["--ro-bind", src, "/code/src", "--ro-bind", src, "/src"]
    mounts += ["--tmpfs", "/rundir", "--dir", "/rundir/harness"]
    folders = [stack.python.parent, *(Path(tool).parent for tool in toolchain.tools.values())]
    environment = {
        "LANG": "C.UTF-8",
        # not 1 for cocotb 1: see rlvr_cvdp.launch.service.cocotb_seed
        **(
            {"COCOTB_RANDOM_SEED": seed} if stack.generation == 2 else {"RANDOM_SEED": f"100{seed}"}
        ),
        **service.environment,
        "HOME": "/code/rundir",
        "PATH": ":".join(dict.fromkeys([*map(str, folders), "/usr/bin", "/bin"])),
        "LIBPYTHON_LOC": str(stack.libpython),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "1",
        "COCOTB_REWRITE_ASSERTION_FILES": "",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    settings = [word for item in environment.items() for word in ("--setenv", *item)]
    return [
        *(str(require_tool("bwrap")), "--unshare-all", "--die-with-parent", "--new-session"),
        *("--clearenv", *mounts, *settings, "--chdir", service.working_dir, *service.command),
    ]


def _tools_mounts(toolchain: Toolchain, stack: Stack) -> list[str]:
    root = Path(toolchain.name.removeprefix(_ROOT)) if toolchain.name.startswith(_ROOT) else None
    shown: dict[str, Path] = {"/usr": (root or Path("/")) / "usr"}
    for path in ("/etc/alternatives", "/etc/ld.so.cache"):
        shown[path] = (root or Path("/")) / path[1:]
    if root is not None:
        shown["/opt/cvdp"] = root / "opt/cvdp"
    else:
        tools = [Path(tool) for tool in toolchain.tools.values()]
        own = [tool.parent.parent for tool in tools if not tool.is_relative_to("/usr")]
        shown |= {str(place): place for place in (*stack.prefixes, *own)}
    mounts = ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for inside, outside in shown.items():
        mounts += ["--ro-bind-try", str(outside), inside]
    for name in ("bin", "sbin", "lib", "lib64"):
        mounts += ["--symlink", f"usr/{name}", f"/{name}"]
    return mounts


async def _run(argv: Sequence[str], timeout_s: float) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), timeout_s)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        return None, f"stopped after {timeout_s:g} s"
    return process.returncode, output.decode(errors="replace")


def _telling(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E ") or "Error" in line]
    return (errors or lines or ["?"])[0][:160]
