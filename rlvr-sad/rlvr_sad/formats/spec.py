"""The record of a format that a plugin offers, and the methods of its adapter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import attrs
from attrs import field, frozen

from rlvr_sad.trajectory_builder import TrajectoryBuilder


@frozen(kw_only=True)
class FormatSpec:
    """
    A format of trajectories, offered through the hook `sad_formats`.

    Attributes:
        name: What people call it: `--format NAME`.
        target: `"module:Class"` of its adapter, built without arguments.
        summary: One line: whose format, how it looks.
        order: Adapters with a lower number are asked first. Those of rlvr-sad begin at 100.
    """

    name: str = field(validator=attrs.validators.matches_re(r"[a-z0-9][a-z0-9-]*"))
    target: str = field(validator=attrs.validators.matches_re(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"))
    summary: str = ""
    order: int = 0


class Adapter(Protocol):
    """
    Reads records of a format.

    A record is a JSON value, or a text. A JSON list whose elements are no records but the steps
    of one (messages, events) is a record too: `claims` is then asked with the list's first
    elements.
    """

    def claims(self, record: Any) -> bool:
        """True where the record looks like one of this format. Cheap, raises nothing."""

    def read(self, record: Any) -> Iterable[TrajectoryBuilder]:
        """
        The record's trajectories, usually one.

        Raises:
            BadRecordError: The record is broken; the text says where.
        """
