"""Check that tinker-cookbook is installed, before anything of it is imported."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rlvr import BuildContext, CheckResult, PluginError, pip_install
from rlvr_tinker_cookbook.config import CookbookConfig

if TYPE_CHECKING:
    from rlvr_tinker_cookbook.task import CookbookTask

EXTRA = "tinker-cookbook"
"""The package to install; docs/tinker-cookbook.md tells how to install it without CUDA."""


def cookbook_task(config: CookbookConfig, context: BuildContext) -> CookbookTask:
    """
    The task of the spec.

    Raises:
        PluginError: tinker-cookbook is not installed, or not all of what it imports.
    """
    try:
        from rlvr_tinker_cookbook.task import CookbookTask
    except ImportError as error:
        raise PluginError(
            "environments of tinker-cookbook were asked for.",
            f"found: it cannot be imported ({error})",
            f"try: {pip_install(EXTRA)}",
        ) from error
    return CookbookTask(config, context)


def installed() -> CheckResult:
    """Whether tinker-cookbook is installed, and which."""
    if find_spec("tinker_cookbook") is None:
        return CheckResult(ok=False, found="not installed", fix=pip_install(EXTRA))
    try:
        found = version("tinker-cookbook")
    except PackageNotFoundError:
        found = "of unknown version"
    return CheckResult(ok=True, found=f"tinker-cookbook {found}")
