"""Samplers `vllm`, `sglang`, `openai`: groups of trajectories whose tokens a server draws."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import structlog

from rlvr import (
    BackendError,
    BuildContext,
    ConfigError,
    GroupSampler,
    Policy,
    Problem,
    Sampler,
    SamplingParams,
    SingleFlight,
    Task,
    Trajectory,
)
from rlvr_servers.config import ServersConfig
from rlvr_servers.protocols.choose import KINDS, build_protocol
from rlvr_servers.protocols.protocol import ServerProtocol
from rlvr_servers.protocols.vllm import Vllm
from rlvr_servers.served_policy import FedPolicy
from rlvr_servers.weight_push import Weights, push

SERVED_WEIGHTS = "served-weights"

log = structlog.get_logger(__name__)


class ServerSampler(Sampler):
    """
    The group sampler, with a server in place of the policy's own engine.

    Asked with a server's policy (`rlvr eval --model vllm:URL`) it draws from that. Asked with any
    other (`rlvr run --backend torch --sampler vllm`), it hands that policy's weights to the server
    at `servers.url` first, whenever they have changed, and draws with the policy's tokenizer,
    version and digest. The run's mismatch check then compares what was drawn with the trainer.

    Raises:
        ConfigError: A server that cannot take weights was to sample for a run.
    """

    draws_from_policy = exports_weights = True
    scheme = ""

    def __init__(self, config: ServersConfig | None, context: BuildContext) -> None:
        self._config = config or ServersConfig()
        self._groups = GroupSampler()
        self._run_dir = context.run_dir
        self._open: tuple[ServerProtocol, FedPolicy] | None = None
        self._pushing = asyncio.Lock()
        self._pushes = SingleFlight[None]()
        self._writing: set[Path] = set()
        self._held: tuple[int, str] | None = None  # version and digest of the server's weights
        self._temperatures: set[float] = {0.0, 1.0}
        where = self._config.weights_dir
        self._mounted = Path(where).expanduser() if where else None
        self._temporary: Path | None = None
        if context.run_dir is not None and self.scheme == "openai":
            raise _untrainable()

    async def __aenter__(self) -> ServerSampler:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Remove weights that were written for the server."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
        if self._mounted is not None:
            shutil.rmtree(self._home(), ignore_errors=True)

    async def sample(
        self, policy: Policy, task: Task, problem: Problem, params: SamplingParams
    ) -> AsyncGenerator[Trajectory]:
        """
        Each trajectory as it ends.

        Raises:
            ConfigError: No server is named, or its weights cannot be those of the policy.
            PrerequisiteError: The server cannot be reached, or was not started so that it takes
                weights.
            BackendError: It does not answer, or cannot read the weights.
        """
        served = await self._served(policy, params)
        async with aclosing(self._groups.sample(served, task, problem, params)) as ended:
            async for trajectory in ended:
                yield trajectory

    async def drawn_by(self, policy: Policy) -> Policy:
        """The server, with the policy's weights or newer ones."""
        return await self._served(policy, SamplingParams())

    async def _served(self, policy: Policy, params: SamplingParams) -> Policy:
        """A server's own policy; else the server with the policy's weights, or newer ones."""
        if policy.draws_on_server:
            return policy
        if self.scheme == "openai":
            raise _untrainable()
        if not policy.can_export:
            raise ConfigError(
                f"sampler {self.scheme} was asked for.",
                f"found: the weights of this backend's policy ({type(policy).__name__}) "
                "cannot be handed to a server",
                "train with --backend torch, or leave --sampler out",
            )
        async with self._pushing:
            protocol, fed = self._open = self._open or await self._opened(policy)
            if params.temperature not in self._temperatures and isinstance(protocol, Vllm):
                await _check_temperature(protocol, policy, params)
                self._temperatures.add(params.temperature)
        if not self._has(policy):
            await self._pushes.done(str(id(policy)), lambda: self._push(policy, protocol, fed))
        return fed

    def _has(self, policy: Policy) -> bool:
        """Whether the server has the policy's weights, or newer ones."""
        if self._held is None:
            return False
        return policy.version < self._held[0] or self._held == (policy.version, policy.digest)

    async def _opened(self, policy: Policy) -> tuple[ServerProtocol, FedPolicy]:
        if not self._config.url:
            raise ConfigError(
                f"sampler {self.scheme} was asked for.",
                "found: servers.url is empty",
                f"name the {KINDS[self.scheme]} server: servers.url=http://HOST:PORT#NAME",
            )
        url = self._config.url.removeprefix(f"{self.scheme}:")
        protocol, _, served = await build_protocol(
            f"{self.scheme}:{url}", self._config, policy.tokenizer
        )
        reads = min(policy.context_length, served.context_length or policy.context_length)
        cut = self._config.slice_tokens
        return protocol, FedPolicy(protocol, policy, context_length=reads, slice_tokens=cut)

    async def _push(self, policy: Policy, protocol: ServerProtocol, fed: FedPolicy) -> None:
        """
        Write the weights, then give them to the server, unless it got newer ones meanwhile.

        The export may wait for an update of the weights, so no lock is held while it does.
        """
        home = self._home()
        written = home / f"new-{id(policy)}"
        self._writing.add(written)
        try:
            await _write(policy, written)
            async with self._pushing:
                if not self._has(policy):
                    label = policy.digest[:16] or f"v{policy.version}"
                    directory = home / f"{policy.version:06d}-{label}"
                    shutil.rmtree(directory, ignore_errors=True)
                    written.rename(directory)
                    await self._give(policy, protocol, fed, directory, label)
        finally:
            self._writing.discard(written)
            shutil.rmtree(written, ignore_errors=True)

    async def _give(
        self,
        policy: Policy,
        protocol: ServerProtocol,
        fed: FedPolicy,
        directory: Path,
        label: str,
    ) -> None:
        home, seen = self._home(), self._config.weights_seen_at
        inside = directory.relative_to(self._mounted or home).as_posix()
        seen_at = f"{seen.rstrip('/')}/{inside}" if seen else str(directory.resolve())
        weights = Weights(directory=directory, seen_at=seen_at, label=label)
        async with fed.resting():
            await push(protocol, weights)
            is_named = not isinstance(protocol, Vllm) and not protocol.adapter
            fed.stand_for(policy, label if is_named else "")
        self._held = (policy.version, policy.digest)
        log.debug("weights_refreshed", version=policy.version, label=label)
        for other in home.iterdir():  # the server has read the newest: earlier ones are of no use
            if other != directory and other not in self._writing and other.is_dir():
                shutil.rmtree(other, ignore_errors=True)

    def _home(self) -> Path:
        if self._mounted is not None:  # which other runs may use, too
            run = self._run_dir.name if self._run_dir else f"eval-{os.getpid()}"
            return self._mounted / SERVED_WEIGHTS / run
        if self._run_dir is not None:
            return self._run_dir / SERVED_WEIGHTS
        self._temporary = self._temporary or Path(tempfile.mkdtemp(prefix="rlvr-served-"))
        return self._temporary / SERVED_WEIGHTS


async def _write(policy: Policy, directory: Path) -> None:
    """Write the policy's weights into a new folder."""
    try:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        await policy.export_weights(directory)
    except OSError as error:
        raise BackendError(
            f"the weights were to be written into {directory} for the server.",
            f"found: {error}",
            "choose another folder: servers.weights_dir=DIR",
        ) from error


def _untrainable() -> ConfigError:
    return ConfigError(
        "sampler openai was to draw from the policy that is trained.",
        "found: an OpenAI-style server has no way to take new weights, so it would go on with the "
        "old ones",
        "use sampler vllm or sglang, whose servers can be refreshed; or leave --sampler out. "
        "Evaluate a served model with: rlvr eval --model openai:URL#NAME",
    )


async def _check_temperature(protocol: Vllm, policy: Policy, params: SamplingParams) -> None:
    """Refuse a server that draws at a temperature and tells the logprobs of another."""
    ids = [int(i) for i in policy.tokenizer.encode("a b")][:4] or [0]
    told = [await protocol.drawn_spread(ids, t) for t in (1.0, 2.0)]
    if told[0] > 1e-3 and abs(told[1] / told[0] - 0.5) > 0.1:
        raise ConfigError(
            f"sampler vllm was asked to draw at temperature {params.temperature:g}.",
            "found: the server tells logprobs of temperature 1 whatever it draws at",
            "start it with --logprobs-mode processed_logprobs, or set sampler.temperature=1",
        )


class VllmSampler(ServerSampler):
    """Sampler `vllm`."""

    scheme = "vllm"


class SglangSampler(ServerSampler):
    """Sampler `sglang`."""

    scheme = "sglang"


class OpenAISampler(ServerSampler):
    """Sampler `openai`: evaluation alone."""

    scheme = "openai"
