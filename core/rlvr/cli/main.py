"""`rlvr`: finds the command, imports it alone, and turns errors into messages and exit codes.

Help and version load no plugin, so that no plugin can break them.
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING

import rlvr
from rlvr.cli.parser import CommandParser, examples
from rlvr.errors import ExitCode, PartError, RlvrError, refused
from rlvr.heartbeat import (
    are_threads_abandoned,
    harmless,
    harmless_output,
    heartbeat,
    open_closed,
    say,
)
from rlvr.log import plain_lines

if TYPE_CHECKING:
    import argparse

    from rlvr.specs import Advice

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("rlvr.cli.run", "train a model on a plugin's problems"),
    "score": ("rlvr.cli.score", "verify answers and write their rewards"),
    "eval": ("rlvr.cli.evaluate", "measure how often a model is right"),
    "audit": ("rlvr.cli.audit", "find problems whose verifier is weak, flaky or wrong"),
    "rescore": ("rlvr.cli.rescore", "apply a reward to the trajectories of a run"),
    "runs": ("rlvr.cli.runs", "list runs, show one, or compare them"),
    "plugins": ("rlvr.cli.plugins", "list plugins, show one, write a new one, or check one"),
    "config": ("rlvr.cli.config", "show each option's value and where it came from"),
    "doctor": ("rlvr.cli.doctor", "check what plugins need from this machine"),
    "completion": ("rlvr.cli.completion", "print a script with which a shell completes words"),
}
"""Command to module and summary. Static, so that help imports none of them."""

OFFERED = {"tinker-server": "the Tinker API on your own machine (rlvr-tinker-server)"}
"""Words of our own plugins (`CommandSpec.is_top`); static for the same reason."""

_DO = "this is a bug of the plugin: --debug shows its traceback"
_PREFIX = re.compile(r"\Arlvr(?: [a-z][\w-]*){0,3}: (?:error: )?")
"""What argparse and commands put before a message; it is said once, by us."""
BROKEN_PIPE = 128 + 13  # as a shell reports a process that SIGPIPE ended


def main(argv: list[str] | None = None) -> int:
    """
    Run one command: the words after `rlvr`, by default those of this process.

    Returns:
        An `ExitCode`, or 141 if the reader of standard output went away.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    if argv is None:
        _end_as_ctrl_c()
    _open_streams()
    return _flushed(_run(words, is_process=argv is None))


def _run(words: list[str], is_process: bool) -> int:
    try:
        with plain_lines():
            code = _dispatch(words, is_process)
        sys.stdout.flush()
        if is_process and are_threads_abandoned():
            sys.stderr.flush()
            os._exit(code)
    except RlvrError as error:
        return _report(error, words)
    except KeyboardInterrupt:
        say("rlvr: interrupted (exit 130)")
        return ExitCode.INTERRUPTED
    except BrokenPipeError as error:
        from rlvr.cli.output import is_reader_gone

        return BROKEN_PIPE if is_reader_gone() else _report_bug(error, words)
    except SystemExit as leaving:  # argparse leaves this way after --help and --version
        if isinstance(leaving.code, str):
            say(leaving.code)
        return leaving.code if isinstance(leaving.code, int) else int(bool(leaving.code))
    except BaseException as error:  # a bug, unless a plugin knows better
        return _report_bug(error, words)
    return code


def _flushed(code: int) -> int:
    """The code, or another where standard output cannot take what was printed."""
    try:
        sys.stdout.flush()
    except (ValueError, AttributeError):  # the command closed it, or took it away
        return code
    except OSError as error:
        # Python flushes it once more at exit: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not code:
            is_pipe = isinstance(error, BrokenPipeError)
            return BROKEN_PIPE if is_pipe else _report_bug(error, ())
    return code


def _end_as_ctrl_c() -> None:
    """SIGTERM and a closed terminal do what Ctrl-C does: all that is open is closed."""
    process = os.getpid()

    def end(number: int, _: object) -> None:
        if os.getpid() != process:  # a fork that a part made ends as it would
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a job in the background
            raise KeyboardInterrupt
        else:
            signal.raise_signal(signal.SIGINT)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, end)


def _open_streams() -> None:
    """Open streams; characters that standard output has no code for are written out."""
    open_closed()
    out, names_of_files = sys.stdout, ("utf-8", "surrogateescape")
    if isinstance(out, TextIOWrapper) and (out.encoding, out.errors) != names_of_files:
        out.reconfigure(errors="backslashreplace")


def _dispatch(words: Sequence[str], is_process: bool) -> int:
    first = next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))
    leading, rest = list(words[:first]), list(words[first + 1 :])
    top = top_parser()
    asked = top.parse_args(leading)
    asked.forks = is_process and hasattr(os, "fork")
    if first == len(words):
        top.print_help()
        return ExitCode.DONE
    with heartbeat(words[first], place=_place):  # imports and help may take long too
        if words[first] not in COMMANDS:
            from rlvr.cli.plugin_commands import run_plugin_command

            return run_plugin_command(words[first], rest, list(COMMANDS))
        return _run_command(words[first], rest, asked)


def _place() -> str:
    from rlvr.plugins.author_error import place_at_work

    return place_at_work()


def _run_command(command: str, rest: list[str], asked: argparse.Namespace) -> int:
    module = importlib.import_module(COMMANDS[command][0])
    parser = CommandParser(prog=f"rlvr {command}", description=COMMANDS[command][1])
    module.configure(parser)
    if {"-h", "--help"} & set(rest) and parser.has("overrides"):
        from rlvr.cli.options import narrowed_help

        narrowed = harmless(narrowed_help(rest, parser.flags()))
        parser.epilog = "\n\n".join(filter(None, [narrowed, parser.epilog or ""]))
    args = parser.parse_args(rest)
    for name in ("verbose", "quiet"):
        setattr(args, name, getattr(args, name, 0) + getattr(asked, name, 0))
    args.forks = asked.forks
    args.debug = getattr(args, "debug", False) or getattr(asked, "debug", False)
    args.verbosity = args.verbose - args.quiet
    with harmless_output():  # not the help: argparse of Python 3.14 colours it
        result: int = module.main(args)
    return result


def top_parser() -> CommandParser:
    """The parser of the flags before the command; its help lists the commands."""
    rows = {name: text for name, (_, text) in COMMANDS.items()}
    rows |= OFFERED
    rows["PLUGIN"] = "a plugin's own commands, like: rlvr cvdp --help"
    width = max(map(len, rows))
    listing = "\n".join(f"  {name.ljust(width)}  {text}" for name, text in rows.items())
    parser = CommandParser(
        prog="rlvr",
        usage="rlvr [-h] [--version] [-v | -q] [--debug] COMMAND ...",
        description=f"Train language models with rewards that a program can verify.\n\n"
        f"commands:\n{listing}",
        epilog=examples(
            "rlvr run --plugin cvdp --algo grpo",
            "rlvr score --plugin cvdp --dataset problems.jsonl --golden",
            "rlvr plugins list",
        ),
    )
    parser.add_argument("--version", action="version", version=f"rlvr {rlvr.__version__}")
    return parser


def _report(error: RlvrError, words: Sequence[str]) -> int:
    if isinstance(error, PartError) and (advice := _advice(error.__cause__)) is not None:
        return _say(advice.message, advice.exit_code)
    return _say(
        _PREFIX.sub("", str(error)), error.exit_code, error if _is_debugging(words) else None
    )


def _report_bug(error: BaseException, words: Sequence[str]) -> int:
    from rlvr.border.calls import culprit
    from rlvr.plugins.author_error import said

    shown = error if _is_debugging(words) else None
    if (advice := _advice(error)) is not None:
        _print_traceback(shown)
        return _say(advice.message, advice.exit_code)
    if (refusal := refused(error)) is not None:
        return _report(refusal, words)
    if who := culprit(error):
        return _say(f"{who} raised {said(error)}\n  {_DO}", ExitCode.PLUGIN, shown)
    _print_traceback(error)
    say(f"rlvr: this is a bug: {type(error).__name__}: {error} (exit 1)")
    return ExitCode.BUG


def _say(message: str, code: int, error: BaseException | None = None) -> int:
    """Print a message with its exit code, and the traceback of an error that is given."""
    say(f"rlvr: {message}    (exit {int(code)})")
    _print_traceback(error)
    return code


def _advice(error: BaseException | None) -> Advice | None:
    """A plugin's advice about an error; None if no plugin has any."""
    if error is None:
        return None
    try:
        from rlvr.plugins.host import PluginHost

        return PluginHost.load().explain_error(error)
    except Exception as secondary:  # the plugin border: the first error is the one to show
        error.add_note(f"while asking plugins for advice: {secondary!r}")
        return None


def _is_debugging(words: Sequence[str]) -> bool:
    from rlvr.plugins.controls import is_on

    return "--debug" in words or any(
        is_on(os.environ, name) for name in ("RLVR_DEBUG", "RLVR_STRICT_PLUGINS")
    )


def _print_traceback(error: BaseException | None) -> None:
    if error is not None:
        import traceback

        say("".join(traceback.format_exception(error)).rstrip())


__all__ = ["COMMANDS", "main"]


if __name__ == "__main__":
    sys.exit(main())
