"""One part of a run: built from its spec, opened, and checked to be of its kind."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from rlvr.border import Border, built, kind_of, same_part
from rlvr.parts import BuildContext
from rlvr.plugins.resolve import load_object
from rlvr.run.promises import fault_of_part
from rlvr.specs import PartSpec

if TYPE_CHECKING:
    from rlvr.run.configure import Configured


def build(configured: Configured, spec: PartSpec, context: BuildContext) -> Any:
    """Make a part: import its target and call it with its own options and the context."""
    factory = load_object(spec.target, spec.provider)
    config = configured.options.record(spec.option_namespace) if spec.config else None
    at = Border(spec, spec.kind, spec.target, promised=f"a {spec.kind}")
    with at:
        part = factory(config, context)
        fault = fault_of_part(part, spec.kind)
    at.check(fault)
    built(spec, part)
    return part


async def enter(stack: AsyncExitStack, part: Any) -> Any:
    """Open a part that owns resources; the stack closes it in reverse order."""
    if not hasattr(part, "__aenter__"):
        return part
    kind = kind_of(part)
    at = Border(part, kind, "__aenter__", promised="the part itself, open")
    with at:
        opened = await stack.enter_async_context(part)
        fault = fault_of_part(opened, kind)
    at.check(fault)
    if type(opened) is not type(part):
        same_part(part, opened)
    return opened
