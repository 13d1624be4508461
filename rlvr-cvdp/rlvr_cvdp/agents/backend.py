"""The backend `agent`: `--model agent:IMAGE`, an agent in a Docker image of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NoReturn

import structlog
from attrs import Factory, field, frozen

from rlvr import (
    BackendError,
    BuildContext,
    ConfigError,
    Episode,
    GenerateRequest,
    Policy,
    PrerequisiteError,
    Problem,
    SampledBackend,
    SamplingParams,
    Segment,
    Trajectory,
    VerifierError,
)
from rlvr_cvdp.agents.config import AgentConfig
from rlvr_cvdp.agents.container import Ran, run_agent
from rlvr_cvdp.agents.workspace import Taken, take, workspace
from rlvr_cvdp.images.daemon import docker_client
from rlvr_cvdp.images.image import find_image
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.sandbox.base import program_slots
from rlvr_cvdp.sandbox.docker import sweep_containers

log = structlog.get_logger(__name__)


@frozen(kw_only=True, eq=False)
class AgentPolicy(Policy):
    """
    The policy of the sampler `agent`; `workers` containers at a time.

    They and the programs of verdicts share one limit (`program_slots`). `digest` is the image's
    id: there are no weights.
    """

    makes_rollouts = True

    client: Any
    image: Any
    config: AgentConfig
    workers: int = 1
    version: int = 0
    digest: str = field(
        init=False, default=Factory(lambda policy: str(policy.image.id), takes_self=True)
    )

    async def generate(self, request: GenerateRequest) -> NoReturn:
        """Refused: only the sampler `agent` asks it."""
        raise BackendError("an agent in a container gives files, no tokens")

    async def rollout(
        self, problem: Problem, episode: Callable[[], Episode], params: SamplingParams, index: int
    ) -> Trajectory:
        """
        One run of the agent.

        `Trajectory.files` are the files to write that it changed; {} where it changed none, or
        where it crashed or was stopped: a wrong answer. Where Docker failed, the trajectory has
        finish "error": no answer at all. `Trajectory.notes["agent"]` says how it ended.

        Raises:
            PrerequisiteError: The image cannot be started.
        """
        try:
            async with program_slots(self.workers):
                ran, taken = await self.attempt(problem.payload)
        except PrerequisiteError:  # every agent's
            raise
        except VerifierError as error:
            log.warning("rollout_failed", problem=problem.id, error=str(error))
            return Trajectory(problem_id=problem.id, index=index, finish="error", error=str(error))
        told = {
            "image": ", ".join(self.image.tags),
            "exit": ran.exit,
            "stopped": ran.stopped,
            "why": ran.why,
            "seconds": round(ran.seconds, 2),
            "changed": sorted(taken.files),
            "left": taken.left,
        }
        return Trajectory(
            problem_id=problem.id,
            index=index,
            segments=(
                Segment(author="prompt", tokens=[], text=problem.payload.prompt),
                Segment(author="policy", tokens=[], logprobs=[], text=ran.log),
            ),
            policy_digest=self.digest,
            files={} if ran.why else taken.files,
            notes={"agent": told},
        )

    async def attempt(self, problem: CvdpProblem) -> tuple[Ran, Taken]:
        """
        Let the agent work on a problem; its files count if it ended with exit status 0.

        Raises:
            PrerequisiteError: The image cannot be started.
            VerifierError: Docker failed.
        """
        stop = threading.Event()

        def work() -> tuple[Ran, Taken]:
            with workspace(problem) as folder:
                ran = run_agent(self.client, self.image, folder, self.config, stop)
                return ran, take(folder, problem)

        task = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:  # the container is gone before this is
            stop.set()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()
            raise


class AgentBackend(SampledBackend):
    """Finds the image of `agent:IMAGE`; nothing is pulled, and nothing is trained."""

    def __init__(self, config: AgentConfig | None, context: BuildContext) -> None:
        self._config = config or AgentConfig()
        self._workers = max(context.workers, 1)
        self._name = context.model.partition(":")[2]
        self._stack = ExitStack()
        self._policy: AgentPolicy | None = None
        if not self._name:
            raise ConfigError(
                "an agent was to be evaluated.",
                "found: no image is named",
                "name one: --model agent:IMAGE",
            )

    async def __aenter__(self) -> AgentBackend:
        """
        Find the daemon and the image, and remove containers that a dead process left.

        Raises:
            PrerequisiteError: No daemon answers, or it has no such image.
        """
        await asyncio.to_thread(self._open)
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._policy = None
        self._stack.close()

    def _open(self) -> None:
        asked = f"the agent {self._name} was to be evaluated."
        with ExitStack() as stack:
            client = stack.enter_context(docker_client(asked))
            image = find_image(client, self._name)
            if image is None:
                raise PrerequisiteError(
                    asked,
                    "found: Docker has no such image",
                    f"build it (docker build -t {self._name} FOLDER), or see: docker images",
                )
            sweep_containers(client, asked)
            self._policy = AgentPolicy(
                client=client, image=image, config=self._config, workers=self._workers
            )
            self._stack = stack.pop_all()

    async def policy(self) -> AgentPolicy:
        """The policy of the sampler `agent`."""
        assert self._policy is not None, "open it first: async with"
        return self._policy

    def untrainable(self) -> ConfigError:
        """The agent has no weights here."""
        return ConfigError(
            "an agent in a container was to be trained.",
            "found: it gives files, no tokens and no gradients",
            "measure it with rlvr eval",
        )
