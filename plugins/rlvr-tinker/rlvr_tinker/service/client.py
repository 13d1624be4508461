"""A Tinker service: whether it is there, its models, and requests with a deadline."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pyqwest.httpx  # noqa: F401  # else two threads of the SDK import it at once: KeyError
import structlog

from rlvr import CheckResult, PrerequisiteError, RlvrError
from rlvr_tinker.config import TinkerConfig
from rlvr_tinker.service.deadlines import in_thread, within
from rlvr_tinker.service.errors import (
    KEY,
    URL,
    explained,
    key_error,
    protocol_error,
    unreachable_error,
)
from rlvr_tinker.service.health import Health
from rlvr_tinker.service.model_spec import Served, certificates

# Set before the SDK is imported: it reads it once.
os.environ.setdefault("TINKER_TELEMETRY", "0")

log = structlog.get_logger(__name__)

_TINKER = "https://tinker.thinkingmachines.dev/services/tinker-prod"
"""The SDK's own default."""
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 10.0
_PROBE_S = 10.0
_FIX = f"set {KEY}, or start a server here: rlvr tinker-server --model SPEC"


class Service:
    """
    One service, and how long it is waited for.

    Attributes:
        config: The `tinker.*` options.
        url: Where it is: the option, the environment, or Tinker itself.
        health: Watches what the service answers; the owner starts and stops it.
        is_open: True once a run has begun: what is missing then is no prerequisite any more.
    """

    def __init__(self, config: TinkerConfig) -> None:
        self.config, self.is_open = config, False
        self.url = (config.base_url or os.environ.get(URL, "") or _TINKER).rstrip("/")
        self.health = Health(self.url)

    async def models(self) -> list[Served]:
        """
        What the service offers to this key.

        Raises:
            PrerequisiteError: No key, no service, or one that speaks another protocol.
        """
        require_key()
        await self.reach(patience_s=2.0)
        doing = "the Tinker service was asked for its models"
        found = await self.asked(lambda client: client.get_server_capabilities(), doing)
        return [
            Served(
                name=str(model.model_name),
                context_length=model.max_context_length or 0,
                is_trainable=model.trainable is not False,
            )
            for model in found.supported_models
            if model.model_name
        ]

    async def watched_models(self) -> list[Served]:
        """As `models`, with the health watched: for a command that asks nothing else."""
        self.health.start()
        try:
            return await self.models()
        finally:
            self.health.stop()

    async def asked(self, ask: Callable[[Any], Any], doing: str) -> Any:
        """What the service answers before a run: `ask` is given a `tinker.RestClient`."""
        tinker = sdk()
        request = await self.blocking(lambda: ask(tinker.RestClient(base_url=self.url)), doing)
        return await within(
            request, doing, limit_s=self.config.connect_s, health=self.health, is_running=False
        )

    async def wait(self, request: Any, doing: str) -> Any:
        """The result of a request; raises as `deadlines.within`."""
        limit_s = self.config.timeout_s
        return await within(
            request, doing, limit_s=limit_s, health=self.health, is_running=self.is_open
        )

    async def blocking(
        self, work: Callable[[], Any], doing: str, limit_s: float | None = None
    ) -> Any:
        """A call of the SDK that may block; `limit_s` None: `tinker.connect_s`."""
        limit_s = limit_s or self.config.connect_s
        return await in_thread(
            work, doing, limit_s=limit_s, health=self.health, is_running=self.is_open
        )

    async def reach(self, *, patience_s: float) -> None:
        """
        Wait until the service answers.

        Raises:
            PrerequisiteError: It did not within `patience_s`, or what answers is no Tinker service.
        """
        url = self.url
        until, pause = time.monotonic() + patience_s, _FIRST_PAUSE_S
        while True:
            try:
                async with httpx.AsyncClient(
                    timeout=_PROBE_S, follow_redirects=True, verify=certificates()
                ) as client:
                    answer = await client.get(f"{url}/api/v1/healthz")
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                found = unreachable_error(str(error) or type(error).__name__, url)
            else:
                if answer.status_code == 404:
                    raise protocol_error(f"{url} answers, and has no /api/v1/healthz")
                if answer.status_code < 500:
                    self.health.forget()
                    return
                found = unreachable_error(f"it answers {answer.status_code}", url)
            if time.monotonic() + pause > until:
                raise found
            log.info("service_awaited", url=url, pause_s=pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)


def require_key() -> None:
    """
    Refuse to go on without a key, before anything is sent.

    Raises:
        PrerequisiteError: None of the places that the SDK looks at holds one.
    """
    key = os.environ.get(KEY, "")
    if key and not key.startswith(("tml-", "eyJ")):
        raise key_error(f"{KEY} is set to something that does not begin with tml-")
    stored = Path("~/.tinker/credentials.json").expanduser()
    if not (key or os.environ.get("TINKER_CREDENTIAL_CMD") or stored.is_file()):
        raise key_error(f"{KEY} is not set")


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


def sdk() -> Any:
    """
    The SDK, imported when first needed: half a second.

    Raises:
        PrerequisiteError: It is broken.
    """
    try:
        import tinker
    except Exception as error:  # a broken dependency of it may raise anything
        raise PrerequisiteError(str(explained(error, "the tinker SDK was imported"))) from error
    return tinker
