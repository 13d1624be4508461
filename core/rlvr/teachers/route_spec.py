"""Parse a model spec of several teachers, each for the problems with a label.

`LABELVALUE=SPEC,LABELVALUE=SPEC` goes by the label "task"; `KEY:VALUE=SPEC` by another one; the
value `*` is for all that no other route takes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import frozen

from rlvr.errors import ConfigError

KEY = "task"
"""Label of routes that name no label."""
REST = "*"
_MODEL = re.compile(r"starter\Z|[A-Za-z][\w+.-]*:.", re.DOTALL)
_HEAD = re.compile(r"(?:(?P<key>[A-Za-z]\w*):)?(?P<value>[^:=?,/\s][^:=?,]*)")
_NEXT = re.compile(r",\s*(?=[^,=?]*=)")


@frozen(kw_only=True)
class Route:
    """Problems whose label `key` is `value` go to the teacher `model`."""

    key: str
    value: str
    model: str

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether the route takes a problem with these labels: its own value, or the rest."""
        return self.value in (labels.get(self.key), REST)

    def __str__(self) -> str:
        key = "" if self.key == KEY else f"{self.key}:"
        return f"{key}{self.value}={self.model}"


def routes_of(text: str) -> tuple[Route, ...]:
    """
    The routes of a teacher's spec, the rest last; () where it is one model's.

    Raises:
        ConfigError: It begins as routes do, and one of them is none.
    """
    if not _are_routes(text):
        return ()
    routes: list[Route] = []
    for entry in _NEXT.split(text):
        before, _, model = entry.partition("=")
        head = _HEAD.fullmatch(before.strip())
        if head is None or not _MODEL.match(model.strip()):
            what = "no label's value before the =" if head is None else "no model after the ="
            raise _unfit(text, f"{what} in {entry.strip()!r}")
        route = Route(key=head["key"] or KEY, value=head["value"].strip(), model=model.strip())
        if any((route.key, route.value) == (other.key, other.value) for other in routes):
            raise _unfit(text, f"{route.key}={route.value} twice")
        routes.append(route)
    if sum(route.value == REST for route in routes) > 1:
        raise _unfit(text, f"several routes for the rest ({REST}=...)")
    return tuple(sorted(routes, key=lambda route: route.value == REST))


def models_of(text: str) -> tuple[str, ...]:
    """The model specs in a teacher's spec, each once: of its routes, or itself; () of ""."""
    found = tuple(dict.fromkeys(route.model for route in routes_of(text)))
    return found or ((text,) if text else ())


def _are_routes(text: str) -> bool:
    """A model's spec has a scheme before any `=`; a route has a label's value there."""
    before, sign, after = _NEXT.split(text)[0].partition("=")
    if not sign:
        return False
    if ":" not in before:
        return True
    return _HEAD.fullmatch(before.strip()) is not None and _MODEL.match(after.strip()) is not None


def _unfit(text: str, found: str) -> ConfigError:
    return ConfigError(
        f"teachers were to be routed by label: {text}",
        f"found: {found}",
        "write VALUE=MODEL,VALUE=MODEL (label 'task'), KEY:VALUE=MODEL for another label, "
        f"{REST}=MODEL for the rest",
    )
