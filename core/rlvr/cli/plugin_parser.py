"""The parser of a plugin's command: the command makes it when it is called."""

from __future__ import annotations

import argparse

from rlvr.plugins.author_error import passes
from rlvr.plugins.resolve import load_object
from rlvr.specs import CommandSpec


def parser_of(command: CommandSpec) -> argparse.ArgumentParser:
    """
    The parser whose help `--help` prints; an empty one where the command prints none of argparse's.

    The command is called for that. Whatever it raises without such a help passes through.
    """
    target = load_object(command.target, command.provider)
    asked: list[argparse.ArgumentParser] = []

    def note(self: argparse.ArgumentParser) -> str:
        asked.append(self)
        return ""

    theirs = argparse.ArgumentParser.format_help
    argparse.ArgumentParser.format_help = note  # type: ignore[method-assign]
    try:
        target(["--help"])
    except BaseException as error:  # the plugin border
        if passes(error) or not (asked or isinstance(error, SystemExit)):
            raise
    finally:
        argparse.ArgumentParser.format_help = theirs  # type: ignore[method-assign]
    return asked[0] if asked else argparse.ArgumentParser()
