"""Whether a run on the service could begin: what `rlvr doctor` says of it."""

from __future__ import annotations

import asyncio

from rlvr import CheckResult, RlvrError
from rlvr_tinker.config import TinkerConfig
from rlvr_tinker.service.client import Service, require_key
from rlvr_tinker.service.errors import KEY

_FIX = f"set {KEY}, or start a server here: rlvr tinker-server --model SPEC"


def check_key() -> CheckResult:
    """A key is set; whether the service takes it is another check."""
    try:
        require_key()
    except RlvrError as error:
        return CheckResult(ok=False, found=str(error).splitlines()[1].strip(), fix=_FIX)
    return CheckResult(ok=True, found="a key is set")


def check_service() -> CheckResult:
    """The service answers and takes the key."""
    try:
        models = asyncio.run(Service(TinkerConfig()).watched_models())
    except RlvrError as error:
        return CheckResult(ok=False, found=" ".join(str(error).split()), fix=_FIX)
    return CheckResult(ok=True, found=f"{len(models)} models: {', '.join(m.name for m in models)}")
