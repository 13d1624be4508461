"""The sampler `replay`: recorded trajectories in the place of rollouts."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from attrs import evolve, frozen
from attrs.validators import ge

from rlvr import (
    BackendError,
    BuildContext,
    ConfigError,
    ImageProcessor,
    Policy,
    Problem,
    Sampler,
    SamplingParams,
    Segment,
    Task,
    Trajectory,
    explain,
    fingerprint,
    option,
)
from rlvr_sad.replay.images import PreparedTrajectory, pictures_of, show
from rlvr_sad.replay.layout import LAYOUTS, frame, lay_out, opening
from rlvr_sad.replay.tally import Tally
from rlvr_sad.replay.windows import LONG, Window, windows
from rlvr_sad.sessions.cache import TrajectoryCache, code_digest
from rlvr_sad.sessions.ref import TrajectoryRef
from rlvr_sad.trajectory import AgentTrajectory

_TRIES = 64
"""Trajectories after which a run that could replay none of them ends."""


@frozen(kw_only=True)
class ReplayConfig:
    """Options of the sampler replay."""

    layout: str = option(
        "auto",
        "turns: as a rollout of the policy, with its chat template; text: the log as it stands; "
        "auto: turns for logs of messages",
        choices=LAYOUTS,
    )
    long: str = option(
        "window",
        "Treatment of a trajectory that does not fit: windows that lose nothing, the best "
        "window alone (cut), or nothing (drop)",
        choices=LONG,
    )
    max_tokens: int = option(
        0, "Tokens of a sequence at most; 0: what the model reads", unit="tokens", validator=ge(0)
    )
    overlap: int = option(
        0,
        "Tokens that a later window reads before what it learns; 0: a quarter of a window",
        unit="tokens",
        validator=ge(0),
    )


class ReplaySampler(Sampler):
    """
    One recorded trajectory a problem, tokenised, with logprobs of zero; windows where it is long.

    A model that has an image processor is shown the pictures; one that cannot be read
    leaves its trajectory out. Nothing is drawn, so importance-weighted losses refuse this sampler.
    `notes["spans"]` of a trajectory say what each segment is: 0 nothing, 1 reasoning, 2 action.
    """

    draws_from_policy = False

    def __init__(self, config: ReplayConfig | None, context: BuildContext) -> None:
        self._config = config or ReplayConfig()
        self._tally = Tally()
        self._known: tuple[Any, str] = (None, "")  # a tokenizer and what tells it apart
        self._limit = self._count = 0
        self._opened: TrajectoryCache | None = None

    async def __aenter__(self) -> ReplaySampler:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Log what was left out or cut since the last log line, and close the cache."""
        self._tally.tell(self._limit, is_over=True)
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    async def sample(
        self, policy: Policy, task: Task, problem: Problem, params: SamplingParams
    ) -> AsyncGenerator[Trajectory]:
        """
        The trajectory of a problem, or its windows in order; none where nothing can be learnt.

        Raises:
            ConfigError: The problem is no recorded trajectory, or windows leave no room.
        """
        recorded: object = problem.payload
        if not isinstance(recorded, TrajectoryRef):
            raise ConfigError(
                "recorded trajectories were to be replayed.",
                f"found: {type(task).__name__}, which has none",
                "use --plugin sad --dataset FILES, or sample from the policy (--sampler group)",
            )
        self._limit, overlap = self._room(policy)
        self._count = self._count or len(list(task.problems("all")))
        try:
            laid = self._laid_out(policy, problem, recorded)
        except BackendError as error:  # the model's template knows no such conversation
            self._tally.refuse(problem.id, str(error))
            return
        mask = laid.tokens.mask
        found = windows(mask, self._limit, overlap, self._config.long, laid.places)
        trajectories = [_replayed(policy, problem, laid, w, n, params) for n, w in enumerate(found)]
        self._tally.count(
            problem.id,
            windows=len(found),
            wanted=int(mask.sum()),
            kept=sum(int(t.mask.sum()) for t in trajectories),
            unseen=laid.unseen,
        )
        self._tally.tell(self._limit)
        for trajectory in trajectories:
            yield trajectory

    def why_empty(self) -> str:
        """Why no trajectory could be replayed; "" if some could, or only few were tried."""
        tried = self._tally.trajectories
        if self._tally.kept or tried < min(_TRIES, self._count):
            return ""
        nothing = f"nothing to learn in {self._limit} tokens"
        why = next(iter(self._tally.reasons.values()), nothing)
        return explain(
            f"{tried} recorded trajectories were to be replayed.",
            f"found: none of them can be: {why}",
            "mend or leave out such records"
            if self._tally.reasons
            else "set replay.long=window, take a model that reads more, or replay.layout=text",
        )

    def _room(self, policy: Policy) -> tuple[int, int]:
        limit = min(self._config.max_tokens or policy.context_length, policy.context_length)
        overlap = self._config.overlap or max(1, limit // 4)
        if limit < 2 or overlap >= limit:
            raise ConfigError(
                f"windows of {limit} tokens were asked for, {overlap} of them only to be read.",
                f"found: nothing is left to learn (the model reads {policy.context_length})",
                "set replay.overlap below the length of a window (replay.max_tokens)",
            )
        return limit, overlap

    def _laid_out(self, policy: Policy, problem: Problem, ref: TrajectoryRef) -> PreparedTrajectory:
        """
        Tokens and first messages, made once: kept by content of trajectory, pictures, tokenizer.

        Raises:
            BackendError: The template knows no such conversation, or a picture cannot be shown.
        """
        tokenizer: Any = policy.tokenizer
        image_processor = policy.image_processor
        if self._known[0] is not tokenizer:
            self._known = (tokenizer, f"{fingerprint(tokenizer)} {frame(tokenizer)}")
        layout = self._config.layout
        about = ["replay", problem.digest, self._known[1], layout, code_digest()]
        cache = self._opened = self._opened or TrajectoryCache()
        recorded = ref.read(cache) if image_processor is not None else None
        pictures = pictures_of(recorded) if recorded is not None else ()
        if image_processor is not None and pictures:
            _load(image_processor)
            with _placed(recorded):
                about += [image_processor.fingerprint, *(picture.digest() for picture in pictures)]
        key = hashlib.sha256("\0".join(about).encode()).digest()
        kept = cache.get([key]).get(key)
        if kept is not None:
            return PreparedTrajectory.unpacked(kept, pictures)
        trajectory = recorded or ref.read(cache)
        if image_processor is not None and pictures:
            with _placed(trajectory):
                found = show(trajectory, tokenizer, image_processor, layout)
        else:
            found = PreparedTrajectory(tokens=lay_out(trajectory, tokenizer, layout))
        unseen = len(trajectory.media()) - len(pictures)
        found = evolve(found, prompt=tuple(opening(trajectory, layout)), unseen=unseen)
        cache.put({key: found.packed()})
        return found


def _load(image_processor: ImageProcessor) -> None:
    """Load the processor: a failure ends the run, it is not the fault of one trajectory."""
    try:
        _ = image_processor.placeholder
    except BackendError as error:
        raise ConfigError(str(error)) from error


@contextmanager
def _placed(trajectory: AgentTrajectory | None) -> Iterator[None]:
    """Make errors about pictures a BackendError that names the record, which is then left out."""
    try:
        yield
    except (BackendError, ConfigError) as error:
        where = f"{trajectory.source}:{trajectory.line}: " if trajectory is not None else ""
        why = "; ".join(line.strip() for line in str(error).splitlines())
        raise BackendError(where + why) from error


def _replayed(
    policy: Policy,
    problem: Problem,
    laid: PreparedTrajectory,
    window: Window,
    index: int,
    params: SamplingParams,
) -> Trajectory:
    tokens = laid.tokens
    inside = slice(window.start, window.end)
    ids, mask = tokens.ids[inside], tokens.mask[inside].copy()
    mask[: max(window.learnt - window.start, 1)] = False
    kinds = np.where(mask, tokens.types[inside], 0)  # 1 reasoning, 2 action: their codes
    cuts = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(ids)]
    segments, spans = [], []
    for start, end in pairwise(cuts):
        part, kind = ids[start:end], int(kinds[start])
        text = policy.tokenizer.decode(part.tolist())
        if kind:
            zeros = np.zeros(len(part), np.float32)
            segment = Segment(author="policy", tokens=part, logprobs=zeros, text=text)
        else:
            segment = Segment(author="env" if start else "prompt", tokens=part, text=text)
        segments.append(segment)
        spans.append(kind)
    notes: dict[str, Any] = {"spans": spans}
    is_part = (window.start, window.end) != (0, len(tokens.ids))
    if is_part:
        notes["window"] = [window.start, window.end, len(tokens.ids)]
    return Trajectory(
        problem_id=problem.id,
        segments=segments,
        finish="length" if is_part else "stop",
        index=index,
        temperature=params.temperature,
        policy_version=policy.version,
        policy_digest=policy.digest,
        notes=notes,
        pictures=laid.pictures_in(window.start, window.end),
        messages=laid.prompt,  # a teacher of another template renders them with its own
    )
