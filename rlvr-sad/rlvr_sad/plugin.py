"""What rlvr-sad offers: commands on trajectories, and their formats."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlvr import hookimpl
from rlvr.specs import CommandSpec

if TYPE_CHECKING:
    from rlvr_sad.formats.spec import FormatSpec

RLVR_API = 1
RLVR_HOOKSPECS = "rlvr_sad.hookspecs"


@hookimpl
def rlvr_commands() -> Iterable[CommandSpec]:
    """Subcommands of `rlvr sad`: look at trajectories, write their spans, measure."""
    return [
        CommandSpec(
            name="inspect",
            target="rlvr_sad.commands.inspect:inspect",
            summary="Show trajectories with their spans coloured, and what was read from each file",
        ),
        CommandSpec(
            name="spans",
            target="rlvr_sad.commands.spans:spans",
            summary="Write the spans of each record as JSON lines",
        ),
        CommandSpec(
            name="gold",
            target="rlvr_sad.commands.gold:gold",
            summary="Compare spans with labelled ones: share of characters right, by source",
        ),
        CommandSpec(
            name="formats",
            target="rlvr_sad.commands.formats:formats_command",
            summary="List the formats that can be read",
        ),
    ]


@hookimpl
def sad_formats() -> Iterable[FormatSpec]:
    """The formats of rlvr-sad itself, through the hook that others use."""
    from rlvr_sad.formats.builtin import FORMATS

    return FORMATS
