"""A server in a process of its own, for tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen
from rlvr_process import Started, start_rlvr

from rlvr import BackendError

_SERVING = re.compile(
    r"^serving (?P<name>.+) \(\d+ positions, \w+\) at (?P<url>http://\S+)\n"
    r"(?:.*\n)*?  tokenizer: (?P<where>.+)\n",
    re.MULTILINE,
)


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
    process: Started
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
    log, told = state / "server.log", state / "server.out"
    mine = {**os.environ, **(env or {})}
    module, words = "rlvr.cli.main", ["tinker-server"]
    if "--faults" in options:
        module, words = "faulty_server", []
        mine["PYTHONPATH"] = str(Path(__file__).parent)
    words += ["--model", model, "--port", str(port), "--state", str(state)]
    words += [option for option in options if option != "--faults"]
    with told.open("w") as out, log.open("a") as err:
        process = start_rlvr(*words, env=mine, program=module, files=(out, err))
    try:
        yield _wait(process, told, log, timeout_s)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: Started, told: Path, log: Path, timeout_s: float) -> Running:
    deadline, has_ended = time.monotonic() + timeout_s, False
    while not has_ended and time.monotonic() < deadline:
        has_ended = process.poll() is not None
        if found := _SERVING.search(told.read_text("utf-8")):
            return Running(
                url=found["url"],
                name=found["name"],
                tokenizer=found["where"],
                process=process,
                log=log,
            )
        time.sleep(0.02)
    said = log.read_text("utf-8", "replace").strip()[-2000:]
    raise BackendError(
        "a tinker-server was to be started.",
        f"found: it {'ended' if has_ended else 'is not up in time'}: {said}",
        f"see {log}",
    )
