"""The official runner of NVlabs/cvdp_benchmark as a judge: a checkout that the person gives."""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from judging.answers import Answer

_NO_CONTAINER = re.compile(
    r"failed to solve|executor failed running|pull access denied|manifest unknown"
    r"|Cannot connect to the Docker daemon|error during connect|network .* not found"
)
_REFUSED = 125
"""Exit status of `docker` itself where it could not start a container."""
_TELLING = re.compile(
    r"^(?:E  .*|.*\b(?:ModuleNotFoundError|ImportError|AttributeError)\b.*|.*syntax error.*)$", re.M
)


@frozen(kw_only=True)
class OfficialVerdict:
    """
    What the official runner said about an answer.

    Attributes:
        ran: It judged the answer; where not (no container, other files), `is_right` says nothing.
        stopped: It ran into the runner's own limit of wall time.
        seconds: Sum over its services, by the runner's own clock.
    """

    is_right: bool
    ran: bool
    why: str
    seconds: float
    stopped: bool = False
    log: str = field(default="", repr=False)


@frozen(kw_only=True)
class OfficialRun:
    """Verdicts in the order of the answers, and the wall time of the runner's commands."""

    verdicts: tuple[OfficialVerdict, ...]
    seconds: float


@frozen(kw_only=True)
class OfficialRunner:
    """
    `run_benchmark.py` in its golden mode: the answer stands where the solution would.

    Attributes:
        checkout: Folder of the checkout; nothing in it is changed.
        python: An interpreter with the checkout's requirements.
        image: What `__OSS_SIM_IMAGE__` becomes.
        threads: Its `-t`.
        timeout_s: Its `DOCKER_TIMEOUT`.
    """

    checkout: Path
    python: str
    image: str
    threads: int = 1
    timeout_s: int = 600

    def judge(self, answers: Sequence[Answer], folder: Path) -> OfficialRun:
        """
        Judge the answers in a new folder, agentic and non-agentic rows each in one run.

        Raises:
            RuntimeError: The runner ended without results.
        """
        folder.mkdir(parents=True)
        rows = {number: official_row(answer, number) for number, answer in enumerate(answers, 1)}
        results: dict[str, Any] = {}
        seconds = 0.0
        for name in ("na", "ag"):
            chosen = [row for row in rows.values() if ("patch" in row) == (name == "ag")]
            if chosen:
                begun = time.monotonic()
                results |= self._run(chosen, folder / f"{name}.jsonl", folder / name)
                seconds += time.monotonic() - begun
        verdicts = []
        for number, answer in enumerate(answers, 1):
            row = rows[number]
            prefix = folder / ("ag" if "patch" in row else "na")
            said = prefix.with_suffix(".log").read_text(errors="replace")
            verdict = _verdict(row["id"], results, _folder(row["id"], prefix), said)
            if other := _other_file(answer, _folder(row["id"], prefix)):
                verdict = evolve(
                    verdict, is_right=False, ran=False, why=f"it wrote another {other}"
                )
            verdicts.append(verdict)
        return OfficialRun(verdicts=tuple(verdicts), seconds=seconds)

    def _run(self, rows: list[dict[str, Any]], dataset: Path, prefix: Path) -> dict[str, Any]:
        dataset.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        command = [self.python, "run_benchmark.py", "-f", str(dataset), "-p", str(prefix)]
        command += ["-t", str(self.threads)]
        return run_official(
            command,
            checkout=self.checkout,
            image=self.image,
            timeout_s=self.timeout_s,
            prefix=prefix,
        )


def run_official(
    command: Sequence[str], *, checkout: Path, image: str, timeout_s: int, prefix: Path
) -> dict[str, Any]:
    """
    The results of a command of the official runner, by id; its log is `prefix` with `.log`.

    Raises:
        RuntimeError: It ended without results.
    """
    environment = {
        **os.environ,
        "OSS_SIM_IMAGE": image,
        "OSS_PNR_IMAGE": image,
        "DOCKER_TIMEOUT": str(timeout_s),
    }
    log = prefix.with_suffix(".log")
    with log.open("w") as out:
        subprocess.run(command, cwd=checkout, env=environment, stdout=out, stderr=out, check=False)
    written = prefix / "raw_result.json"
    if not written.is_file():
        tail = log.read_text(errors="replace")[-1500:]
        raise RuntimeError(f"the official runner left no raw_result.json; it said:\n{tail}")
    results: dict[str, Any] = json.loads(written.read_text())
    return results


def verdict_of(row_id: str, results: Mapping[str, Any], prefix: Path, said: str) -> OfficialVerdict:
    """The verdict on a row of a run whose results and files lie below `prefix`."""
    return _verdict(row_id, results, _folder(row_id, prefix), said)


def official_row(answer: Answer, number: int) -> dict[str, Any]:
    """
    The row with the answer as its solution, and an id that names its folder alone.

    The runner's folders are made of the id; many answers to one problem would share theirs.
    """
    row = json.loads(json.dumps(answer.row))
    parts = row["id"].split("_")
    kind = "agentic" if "patch" in row else "copilot"
    row["id"] = "_".join(["cvdp", kind, *(parts[2:-1] or ["problem"]), f"{number:07d}"])
    if "patch" in row:
        row["patch"] = {
            path: unified(row["context"].get(path) or "", text)
            for path, text in answer.files.items()
        }
    else:
        row["output"]["context"] = dict(answer.files)
    return dict(row)


def unified(before: str, after: str) -> str:
    """The hunks from one text to the other, without a header, as the agentic rows hold them."""
    old, new = (before.split("\n") if before else []), after.split("\n")
    return "\n".join([*difflib.unified_diff(old, new, lineterm="")][2:])


def _folder(row_id: str, prefix: Path) -> Path:
    parts = row_id.split("_")
    return prefix / ("cvdp_" + "_".join(parts[1:-1])) / "harness" / str(int(parts[-1]))


def _other_file(answer: Answer, tree: Path) -> str:
    """A file that the runner judged instead of the answer's, such as after a patch it misread."""
    for path, text in answer.files.items():
        place = tree / path
        written = place.read_text(encoding="utf-8") if place.is_file() else None
        if written is None or written.rstrip("\n") != text.rstrip("\n"):
            return path
    return ""


def _verdict(row_id: str, results: Mapping[str, Any], tree: Path, said: str) -> OfficialVerdict:
    found = results.get(row_id)
    if found is None:
        return OfficialVerdict(is_right=False, ran=False, why="no result", seconds=0.0)
    logs = []
    for test in found["tests"]:
        path = Path(test["log"] or "/nonexistent")
        logs.append(path.read_text(errors="replace") if path.is_file() else "")
    text = "\n".join(logs)
    is_right = found["errors"] == 0
    is_refused = any(test["result"] == _REFUSED for test in found["tests"])
    blocked = not is_right and (
        is_refused or ("test session starts" not in text and bool(_NO_CONTAINER.search(text)))
    )
    stopped = not is_right and f"Timeout for {tree}/" in said
    return OfficialVerdict(
        is_right=is_right,
        ran=not blocked,
        why="" if is_right else _why(found, text, blocked, stopped),
        stopped=stopped,
        seconds=sum(test["execution"] for test in found["tests"]),
        log=text,
    )


def _why(found: Mapping[str, Any], log: str, blocked: bool, stopped: bool) -> str:
    if stopped:
        return "it ran into the runner's limit of time"
    codes = ", ".join(str(test["result"]) for test in found["tests"])
    if blocked:
        lines = [line.strip() for line in log.splitlines() if _NO_CONTAINER.search(line)]
        return f"no container: {(lines or [f'exit {codes}'])[-1][:160]}"
    told = [line.strip() for line in _TELLING.findall(log)]
    messages = [test["error_msg"] for test in found["tests"] if test.get("error_msg")]
    return f"exit {codes}: {(messages or told or ['?'])[0][:160]}"
