"""`rlvr cvdp export` and `import`: files of the official runner's local_export and local_import."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlvr import BuildContext, ConfigError, Problem, counted
from rlvr_cvdp.answers.official import official_text
from rlvr_cvdp.commands.arguments import parser_of
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.task import CvdpTask


def export_prompts(argv: list[str]) -> int:
    """Write the prompt of each problem, as `--model local_export` does."""
    parser = parser_of(
        "export",
        "Prompts of a data set, one JSON object a line: id, prompt, system, user.",
        "export --dataset cvdp.jsonl --out prompts.jsonl",
        "export --dataset cvdp.jsonl --max-prompt-tokens 8000",
        has_json=False,
    )
    parser.add_argument("--out", type=Path, help="where they go; default: stdout")
    parser.add_argument("--split", default="all", help="split that is written (default: all)")
    parser.add_argument(
        "--max-prompt-tokens", type=int, default=0, help="as cvdp.max_prompt_tokens"
    )
    options = parser.parse_args(argv)
    config = CvdpConfig(prompt="official", max_prompt_tokens=options.max_prompt_tokens)
    task = CvdpTask(config, BuildContext(dataset=options.dataset))
    lines = [_prompt_line(problem) for problem in task.problems(options.split)]
    left_out = len(task.unsupported())
    if not lines:
        raise ConfigError(
            f"prompts of split '{options.split}' were to be written.",
            f"found: no problem in it; {counted(left_out, 'unverifiable row')}",
            "try: another --dataset or --split; rlvr cvdp list says why rows cannot be verified",
        )
    count = _write(options.out, lines)
    print(
        f"{counted(count, 'prompt')}, {counted(left_out, 'unverifiable row')} left out",
        file=sys.stderr,
    )
    return 0


def import_completions(argv: list[str]) -> int:
    """Write completions for `--model local_import`, from samples of `rlvr eval --out`."""
    parser = parser_of(
        "import",
        "Completions for the official runner's local_import, one JSON object a line: "
        "id, completion. Several samples of a problem are several lines, in their order.",
        "import --completions samples.jsonl --out responses.jsonl\n"
        "  rlvr eval --plugin cvdp --samples 5 --out s.jsonl && "
        "rlvr cvdp import --completions s.jsonl",
        has_dataset=False,
        has_json=False,
    )
    parser.add_argument(
        "--completions", type=Path, required=True, help="of rlvr eval --out or for rlvr score"
    )
    parser.add_argument("--out", type=Path, help="where they go; default: stdout")
    options = parser.parse_args(argv)
    wrong: list[str] = []
    lines = list(completion_lines(_read(options.completions), wrong))
    for words in wrong:
        print(f"rlvr: {words}", file=sys.stderr)
    if not lines:
        raise ConfigError(
            f"completions were to be read from {options.completions}.",
            f"found: none; {counted(len(wrong), 'line')} without id and completion",
            "try: a file of rlvr eval --out, or lines of id and completion",
        )
    count = _write(options.out, lines)
    print(
        f"{counted(count, 'completion')}, {counted(len(wrong), 'line')} left out", file=sys.stderr
    )
    return 0


def completion_lines(lines: Iterable[str], wrong: list[str]) -> Iterator[dict[str, str]]:
    """
    `{"id", "completion"}` of each line that has them; of the others `wrong` gets a sentence.

    An answer that was given as files is written as the official runner reads it back.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            read: Any = json.loads(line)
        except (ValueError, RecursionError):
            read = None
        record = read if isinstance(read, dict) else {}
        name, completion = record.get("id"), _completion(record)
        if not isinstance(name, str) or completion is None:
            wrong.append(f"line {number}: no id and completion in it")
        else:
            yield {"id": name, "completion": completion}


def _completion(record: Mapping[str, Any]) -> str | None:
    files, text, segments = (record.get(key) for key in ("files", "completion", "segments"))
    if isinstance(files, dict) and files and all(isinstance(t, str) for t in files.values()):
        return official_text(files)
    if isinstance(text, str):
        return text
    if isinstance(segments, list):
        own = [
            s.get("text") for s in segments if isinstance(s, dict) and s.get("author") == "policy"
        ]
        return own[-1] if own and isinstance(own[-1], str) else None
    return None


def _prompt_line(problem: Problem) -> dict[str, str]:
    texts = {message.role: message.content for message in problem.prompt}
    system, user = texts.get("system", ""), texts.get("user", "")
    return {"id": problem.id, "prompt": f"{system}\n\n{user}", "system": system, "user": user}


def _read(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace").split("\n")
    except OSError as error:
        raise ConfigError(
            f"completions were to be read from {path}.",
            f"found: {error.strerror}",
            "try: a file of rlvr eval --out, or lines of id and completion",
        ) from None


def _write(path: Path | None, records: Iterable[Mapping[str, str]]) -> int:
    lines = [json.dumps(record) + "\n" for record in records]
    if path is None:
        sys.stdout.writelines(lines)
        return len(lines)
    try:
        path.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"the result was to be written to {path}.",
            f"found: {error.strerror}",
            "try: another --out",
        ) from None
    return len(lines)
