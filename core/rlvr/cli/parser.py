"""argparse with suggestions, options between positional words, and the common flags."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from rlvr.config.part_flags import split_flags, unknown_flag
from rlvr.errors import ConfigError, UnknownNameError
from rlvr.suggest import nearest


class CommandParser(argparse.ArgumentParser):
    """
    A parser of one command. Its subparsers are of this class too.

    A mistake raises `ConfigError` (exit 2) rather than leaving the process. `--debug`, `-v` and
    `-q` are accepted at every level; `key=value` words may stand between flags. Where a command
    takes such words, flags that are not its own are kept in `args.part_flags`: they may be options
    of the chosen task or reward, which only the plugins know.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)
        self._is_intermixing = False
        absent = argparse.SUPPRESS  # so that a subparser does not reset what its parent has read
        common = self.add_argument_group("common flags")
        common.add_argument(
            "-v", "--verbose", action="count", default=absent, help="log more on standard error"
        )
        common.add_argument(
            "-q", "--quiet", action="count", default=absent, help="log warnings only; -qq: errors"
        )
        common.add_argument(
            "--debug", action="store_true", default=absent, help="show tracebacks of all errors"
        )

    def print_help(self, file: Any = None) -> None:
        """Print the help; a disk that is full is told, which argparse keeps from Python 3.12 on."""
        (file or sys.stdout).write(self.format_help())

    def parse_known_args(  # type: ignore[override]  # argparse's overloads add nothing here
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse; flags may stand between positional words where no subcommand follows."""
        if self._is_intermixing or not self._takes_words():
            return self._at_home(*super().parse_known_args(args, namespace))
        words = list(sys.argv[1:] if args is None else args)
        part_flags = None
        if self.has("overrides"):
            words, part_flags = split_flags(words, self)
        self._is_intermixing = True
        try:
            parsed, rest = self.parse_known_intermixed_args(words, namespace)
        finally:
            self._is_intermixing = False
        if part_flags is not None:
            parsed.part_flags = part_flags
        return parsed, rest

    def _at_home(
        self, parsed: argparse.Namespace, rest: list[str]
    ) -> tuple[argparse.Namespace, list[str]]:
        """Paths with their `~` replaced: shells leave it in `--out=~/run`."""
        for flag in self._actions:
            path = getattr(parsed, flag.dest, None)
            if isinstance(path, str) and flag.metavar in ("DIR", "FILE", "PATH"):
                setattr(parsed, flag.dest, os.path.expanduser(path))
        return parsed, rest

    def error(self, message: str) -> NoReturn:
        """
        Refuse the command line.

        Raises:
            UnknownNameError: A subcommand or flag that does not exist.
            ConfigError: Anything else.
        """
        refuse(self, message)

    def flags(self) -> list[str]:
        """Every long flag of this parser and its subparsers."""
        return _flags_of(self)

    def subparsers(self) -> list[CommandParser]:
        """The parsers of this command's verbs."""
        return [
            parser
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for parser in action.choices.values()
        ]

    def has(self, dest: str) -> bool:
        """True where this parser (no subparser) fills `args.DEST`."""
        return any(action.dest == dest for action in self._actions)

    def _takes_words(self) -> bool:
        positionals = self._get_positional_actions()
        return bool(positionals) and all(
            action.nargs not in (argparse.PARSER, argparse.REMAINDER) for action in positionals
        )


def refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """
    Refuse a command line in rlvr's words, also where a parser is argparse's own.

    Raises:
        UnknownNameError: A subcommand or flag that does not exist.
        ConfigError: Anything else.
    """
    do = f"try: {parser.prog} --help"
    if match := re.match(r"unrecognized arguments: (.*)", message):
        words = match.group(1).split()
        unknown = next((word for word in words if word.startswith("-")), words[0])
        raise unknown_flag(unknown, parser.prog, _flags_of(parser))
    if match := re.search(r"invalid choice: '?([^' ]*)'? \(choose from (.*)\)", message):
        choices = [choice.strip(" '") for choice in match.group(2).split(",")]
        found = f"there are: {', '.join(choices)}"
        close = nearest(match.group(1), choices)
        hint = f"    did you mean {close!r}?" if close else ""
        wrong = message.partition(" (choose from")[0]
        raise UnknownNameError(f"{parser.prog}: {wrong}", found + hint, do)
    message = message.replace(", key=value", "")  # argparse takes these words for required
    raise ConfigError(f"{parser.prog}: {message}", do=do)


@contextmanager
def refusals_are_ours() -> Iterator[None]:
    """While it is open, parsers that a plugin makes of argparse refuse as `CommandParser` does."""
    theirs = argparse.ArgumentParser.error
    argparse.ArgumentParser.error = refuse  # type: ignore[method-assign,assignment]
    try:
        yield
    except SystemExit as leaving:  # `sys.exit("why")`
        if isinstance(leaving.code, str):
            raise ConfigError(leaving.code) from None
        raise
    finally:
        argparse.ArgumentParser.error = theirs  # type: ignore[method-assign]


def _flags_of(parser: argparse.ArgumentParser) -> list[str]:
    found = [f for f in parser._option_string_actions if f.startswith("--")]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                found += _flags_of(below)
    return found


def examples(*lines: str) -> str:
    """The end of a help page: commands that run as they stand."""
    return "examples:\n" + "\n".join(f"  {line}" for line in lines)
