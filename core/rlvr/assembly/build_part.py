"""Build one part of a run from its spec, check that it is of its kind, and open it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from rlvr.border.calls import Border, article, built, kind_of, label, same_part
from rlvr.border.declared import check_declarations
from rlvr.border.kinds import fault_of_part
from rlvr.errors import ConfigError
from rlvr.log import get
from rlvr.parts import BuildContext
from rlvr.plugins.author_error import said
from rlvr.plugins.registry import Registry
from rlvr.plugins.resolve import load_object
from rlvr.specs import LossSpec, PartSpec

if TYPE_CHECKING:
    from rlvr.assembly.configured import Configured

log = get(__name__)


def build(configured: Configured, spec: PartSpec, context: BuildContext) -> Any:
    """Make a part: import its target and call it with its own options and the context."""
    config = configured.options.record(spec.option_namespace) if spec.config else None
    context = attrs.evolve(context, namespace=spec.option_namespace)
    if isinstance(spec, LossSpec) and spec.around:
        inner = Registry(configured.host).find("loss", spec.around, spec.provider)
        context = attrs.evolve(context, inner=_inner(inner, config, context))
    part = _made(spec, config, context)
    built(spec, part)
    return part


def _inner(spec: LossSpec, outer: Any, context: BuildContext) -> Any:
    """The loss that another one is built around, with those of its options that it shares."""
    config = None
    if spec.config:
        record = load_object(spec.config, spec.provider)
        names = {f.name for f in attrs.fields(record)} & {f.name for f in attrs.fields(type(outer))}
        with Border(spec, spec.kind, spec.config, promised="to take options of the loss around it"):
            config = record(**{name: getattr(outer, name) for name in names})
    part = _made(spec, config, context)
    check_declarations(part, "loss")
    return part


def _made(spec: PartSpec, config: Any, context: BuildContext) -> Any:
    at = Border(spec, spec.kind, spec.target, promised=f"{article(spec.kind)} {spec.kind}")
    with at:
        part = load_object(spec.target, spec.provider)(config, context)
        fault = fault_of_part(part, spec.kind)
    at.check(fault)
    return part


async def opened(
    stack: AsyncExitStack, configured: Configured, spec: PartSpec | None, context: BuildContext
) -> Any:
    """Build a part that the command needs, and open it; the stack closes it."""
    if spec is None:
        raise ConfigError("this command was configured without a part that it needs")
    return await enter(stack, build(configured, spec, context))


async def _left(part: Any, kind: str, *body: Any) -> None:
    """Close a part after the body of the command, whose error comes first and is never lost."""
    try:
        with Border(part, kind, "__aexit__", promised="nothing, as all that it opened is closed"):
            await part.__aexit__(*body)
    except BaseException as error:
        if body[1] is None:
            raise
        if error is not body[1] and error.__cause__ is not body[1]:
            why = said(error.__cause__ or error)
            log.error("part_not_closed", part=label(part, kind), error=why)


async def enter(stack: AsyncExitStack, part: Any) -> Any:
    """Open a part; the stack closes it in reverse order."""
    found = await entered(stack, part, kind := kind_of(part))
    check_declarations(found, kind)
    return found


async def entered(stack: AsyncExitStack, part: Any, kind: str) -> Any:
    """The same, whatever the part declares."""
    at = Border(part, kind, "__aenter__", promised="the part itself, open")
    with at:
        found = await part.__aenter__()
        fault = fault_of_part(found, kind)
    stack.push_async_exit(partial(_left, part, kind))
    at.check(fault)
    if type(found) is not type(part):
        same_part(part, found)
    return found
