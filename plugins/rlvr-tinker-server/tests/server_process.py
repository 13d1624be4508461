"""A server in a process of its own, for tests."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from rlvr import BackendError

_SERVING = re.compile(r"serving (?P<name>.+) \(\d+ positions, \w+\) at (?P<url>http://\S+)")
_TOKENIZER = re.compile(r"  tokenizer: (?P<where>.+)")


@frozen(kw_only=True)
class Running:
    """
    A server that listens.

    Attributes:
        url: For `TINKER_BASE_URL`.
        name: Of its model.
        tokenizer: Where transformers finds the model's tokenizer.
        process: The server itself.
        log: File with what it logs.
    """

    url: str
    name: str
    tokenizer: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a client's environment needs."""
        return {
            "TINKER_BASE_URL": self.url,
            "TINKER_API_KEY": "tml-local",
            "TINKER_TELEMETRY": "0",
        }

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        self.process.kill()
        self.process.wait()


@contextmanager
def started(
    model: str,
    *options: str,
    state: Path,
    port: int = 0,
    timeout_s: float = 180.0,
    env: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """
    `rlvr tinker-server --model MODEL` with a free port; it ends with the block.

    Args:
        model: Model spec.
        options: Further words of the command line; `--faults`: it does things wrong when it is
            asked to (faulty_server.py).
        state: Folder of its checkpoints; its log is there too.
        port: 0: any free one.
        timeout_s: How long it may take until it listens.
        env: Changes of the environment.

    Raises:
        BackendError: It ended, or did not listen in time; what it said is in the error.
    """
    state.mkdir(parents=True, exist_ok=True)
    log = state / "server.log"
    program = ["-m", "rlvr.cli.main", "tinker-server"]
    if "--faults" in options:
        program = [str(Path(__file__).with_name("faulty_server.py"))]
    words = ["--model", model, "--port", str(port), "--state", str(state)]
    words += [option for option in options if option != "--faults"]
    with log.open("a") as file:
        process = subprocess.Popen(
            [sys.executable, *program, *words],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env={**os.environ, **(env or {})},
        )
    try:
        yield _wait(process, log, timeout_s)
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _wait(process: subprocess.Popen[str], log: Path, timeout_s: float) -> Running:
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line.rstrip("\n"))
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    deadline = time.monotonic() + timeout_s
    serving: re.Match[str] | None = None
    while (left := deadline - time.monotonic()) > 0:
        try:
            line = lines.get(timeout=left)
        except queue.Empty:
            break
        if line is None:
            break
        serving = serving or _SERVING.fullmatch(line)
        if serving is not None and (tokenizer := _TOKENIZER.fullmatch(line)):
            return Running(
                url=serving["url"],
                name=serving["name"],
                tokenizer=tokenizer["where"],
                process=process,
                log=log,
            )
    said = log.read_text("utf-8", "replace").strip()[-2000:]
    raise BackendError(
        "a tinker-server was to be started.",
        f"found: it {'ended' if process.poll() is not None else 'is not up in time'}: {said}",
        f"see {log}",
    )
