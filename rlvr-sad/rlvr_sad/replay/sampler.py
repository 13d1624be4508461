"""The sampler `replay`: recorded trajectories in the place of rollouts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from attrs import evolve, frozen
from attrs.validators import ge

from rlvr import option
from rlvr.errors import BackendError, ConfigError, explain
from rlvr.parts import BuildContext, Policy, Task
from rlvr.pictures import Seeing
from rlvr.tokenization import Sight
from rlvr.types import Group, Problem, SamplingParams, Segment, Trajectory
from rlvr_sad.reading.cache import TrajectoryCache, code_digest
from rlvr_sad.replay.laid import Laid
from rlvr_sad.replay.layout import LAYOUTS, frame, lay_out, opening
from rlvr_sad.replay.tally import Tally
from rlvr_sad.replay.windows import LONG, Window, windows
from rlvr_sad.tokens import fingerprint
from rlvr_sad.trajectory import CODES, AgentTrajectory
from rlvr_sad.vision import Shown, StoredPicture, pictures_of, show

_TRIES = 64
"""Trajectories after which a run that could replay none of them ends."""
_KINDS = np.zeros(len(CODES), np.uint8)
_KINDS[CODES["reasoning"]], _KINDS[CODES["action"]] = 1, 2


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
        "What becomes of a trajectory that does not fit: windows that lose nothing, the best "
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


@runtime_checkable
class Recording(Protocol):
    """A task of recorded trajectories."""

    cache: TrajectoryCache

    def problems(self, split: str) -> Sequence[Problem]: ...

    def trajectory(self, problem: Problem) -> AgentTrajectory: ...


class ReplaySampler:
    """
    One recorded trajectory a problem, tokenised, with logprobs of zero; windows where it is long.

    A model that sees (`rlvr.pictures.Seeing`) is shown the pictures; one that cannot be read
    leaves its trajectory out. Nothing is drawn, so importance-weighted losses refuse this sampler.
    `notes["spans"]` of a trajectory say what each segment is: 0 nothing, 1 reasoning, 2 action.
    """

    draws_from_policy = False

    def __init__(self, config: ReplayConfig | None, context: BuildContext) -> None:
        self._config = config or ReplayConfig()
        self._tally = Tally()
        self._known: tuple[Any, str] = (None, "")  # a tokenizer and what tells it apart

    async def sample(
        self, policy: Policy, task: Task, problems: Sequence[Problem], params: SamplingParams
    ) -> list[Group]:
        """
        The trajectories of each problem, in order; an empty group where nothing can be learnt.

        Raises:
            ConfigError: The task has no recorded trajectories, windows leave no room, or none of
                many trajectories could be replayed.
        """
        if not isinstance(task, Recording):
            raise ConfigError(
                explain(
                    "recorded trajectories were to be replayed.",
                    f"found: {type(task).__name__}, which has none",
                    "use --plugin sad --dataset FILES, or sample from the policy (--sampler group)",
                )
            )
        limit, overlap = self._room(policy)
        groups = []
        for problem in problems:
            try:
                laid = self._laid_out(policy, task, problem)
            except BackendError as error:  # the model's template knows no such conversation
                self._tally.refuse(problem.id, str(error))
                groups.append(Group(problem=problem, trajectories=()))
                continue
            tokens = laid.tokens
            found = windows(tokens.mask, limit, overlap, self._config.long, laid.places)
            trajectories = [_replayed(policy, problem, laid, w, params) for w in found]
            self._tally.count(
                problem.id,
                windows=len(found),
                wanted=int(tokens.mask.sum()),
                kept=sum(int(t.mask.sum()) for t in trajectories),
                unseen=laid.unseen,
            )
            if laid.prompt:  # a teacher of another template renders it with its own
                problem = evolve(problem, prompt=laid.prompt)
            groups.append(Group(problem=problem, trajectories=trajectories))
        self._tally.tell(limit)
        tried = self._tally.trajectories
        if problems and not self._tally.kept and tried >= min(_TRIES, len(task.problems("all"))):
            raise self._nothing(tried, limit)
        return groups

    def _nothing(self, tried: int, limit: int) -> ConfigError:
        why = next(iter(self._tally.reasons.values()), f"nothing to learn in {limit} tokens")
        return ConfigError(
            explain(
                f"{tried} recorded trajectories were to be replayed.",
                f"found: none of them can be: {why}",
                "mend or leave out such records"
                if self._tally.reasons
                else "set replay.long=window, take a model that reads more, or replay.layout=text",
            )
        )

    def _room(self, policy: Policy) -> tuple[int, int]:
        limit = min(self._config.max_tokens or policy.context_length, policy.context_length)
        overlap = self._config.overlap or max(1, limit // 4)
        if limit < 2 or overlap >= limit:
            raise ConfigError(
                explain(
                    f"windows of {limit} tokens were asked for, {overlap} of them only to be read.",
                    f"found: nothing is left to learn (the model reads {policy.context_length})",
                    "set replay.overlap below the length of a window (replay.max_tokens)",
                )
            )
        return limit, overlap

    def _laid_out(self, policy: Policy, task: Recording, problem: Problem) -> Laid:
        """
        Tokens and first messages, made once: kept by content of trajectory, pictures, tokenizer.

        Raises:
            BackendError: The template knows no such conversation, or a picture cannot be shown.
        """
        tokenizer: Any = policy.tokenizer
        sight = policy.sight if isinstance(policy, Seeing) else None
        if self._known[0] is not tokenizer:
            self._known = (tokenizer, f"{fingerprint(tokenizer)} {frame(tokenizer)}")
        layout = self._config.layout
        about = ["replay", problem.digest, self._known[1], layout, code_digest()]
        recorded = task.trajectory(problem) if sight is not None else None
        pictures = pictures_of(recorded) if recorded is not None else ()
        if sight is not None and pictures:
            _load(sight)
            about += [sight.fingerprint, *_digests(pictures, recorded)]
        key = hashlib.sha256("\0".join(about).encode()).digest()
        kept = task.cache.get([key]).get(key)
        if kept is not None:
            return Laid.unpacked(kept, pictures)
        trajectory = recorded or task.trajectory(problem)
        if sight is not None and pictures:
            shown = _shown(trajectory, tokenizer, sight, layout)
        else:
            shown = Shown(lay_out(trajectory, tokenizer, layout))
        found = Laid(
            tokens=shown.tokens,
            prompt=tuple(opening(trajectory, layout)),
            places=shown.places,
            pictures=shown.pictures,
            unseen=len(trajectory.media()) - len(pictures),
        )
        task.cache.put({key: found.packed()})
        return found


def _load(sight: Sight) -> None:
    """Have the processor: where it cannot be had, that is no matter of one trajectory."""
    try:
        _ = sight.placeholder
    except BackendError as error:
        raise ConfigError(str(error)) from error


def _digests(pictures: Sequence[StoredPicture], trajectory: AgentTrajectory | None) -> list[str]:
    try:
        return [picture.digest() for picture in pictures]
    except ConfigError as error:
        raise _not_shown(trajectory, error) from error


def _shown(trajectory: AgentTrajectory, tokenizer: Any, sight: Sight, layout: str) -> Shown:
    try:
        return show(trajectory, tokenizer, sight, layout)
    except (BackendError, ConfigError) as error:
        raise _not_shown(trajectory, error) from error


def _not_shown(trajectory: AgentTrajectory | None, error: Exception) -> BackendError:
    """Why one trajectory is left out, with the place of its record."""
    where = f"{trajectory.source}:{trajectory.line}: " if trajectory is not None else ""
    return BackendError(where + "; ".join(line.strip() for line in str(error).splitlines()))


def _replayed(
    policy: Policy, problem: Problem, laid: Laid, window: Window, params: SamplingParams
) -> Trajectory:
    tokens = laid.tokens
    inside = slice(window.start, window.end)
    ids, kinds = tokens.ids[inside], _KINDS[tokens.types[inside]]
    mask = tokens.mask[inside].copy()
    mask[: max(window.learnt - window.start, 1)] = False
    kinds = np.where(mask, kinds, 0)
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
        temperature=params.temperature,
        policy_version=policy.version,
        policy_digest=policy.digest,
        notes=notes,
        pictures=laid.pictures_in(window.start, window.end),
    )
