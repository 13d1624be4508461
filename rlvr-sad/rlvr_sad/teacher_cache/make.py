"""Ask a teacher about recorded trajectories once, and keep its answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from attrs import frozen

from rlvr import (
    BackendError,
    ConfigError,
    Policy,
    Sampler,
    SamplingParams,
    Task,
    Teacher,
    TeacherRequest,
    TopK,
    Trajectory,
    fingerprint,
    sample_groups,
    teacher_scores,
)
from rlvr_sad.teacher_cache.answers import (
    TOKENIZER,
    Answers,
    Head,
    asked_of,
    key_of,
    rows_of,
    write_head,
)
from rlvr_sad.teacher_cache.tokenizer import keep_tokenizer


@frozen(kw_only=True)
class Wish:
    """
    The answers to keep, and where.

    Attributes:
        folder: Begun, or gone on with.
        k: Likeliest tokens a position, at least 1; beyond the vocabulary it is the vocabulary.
        temperature: That the teacher's logits are divided by.
        at_once: Trajectories that the teacher is asked about together.
    """

    folder: Path
    k: int = 64
    temperature: float = 1.0
    at_once: int = 8


@frozen(kw_only=True)
class Made:
    """How many sequences were asked about, were there before, and the positions that are new."""

    asked: int
    known: int
    positions: int


async def make(
    wish: Wish,
    teacher: Teacher,
    policy: Policy,
    task: Task,
    sampler: Sampler,
    tell: Callable[[int, int], None],
) -> Made:
    """
    Keep the teacher's answers to all trajectories of a task; what is there is not asked again.

    Args:
        wish: What, and where.
        teacher: Open; its tokenizer has to be the policy's.
        policy: The student: its tokenizer and how much it reads make the sequences.
        task: Of recorded trajectories.
        sampler: Replays them.
        tell: Told now and then how many trajectories of how many are done.

    Raises:
        ConfigError: The teacher cannot answer, has another tokenizer, or the folder another making;
            or a trajectory has pictures that the model sees.
        BackendError: The teacher failed; what it answered before is kept.
    """
    if not teacher.capabilities.has_scores or teacher.capabilities.reads_data:
        raise ConfigError(
            f"teacher {teacher.name} was to tell its {wish.k} likeliest tokens.",
            "found: it only tells how likely given tokens are",
            "choose another teacher: hf:PATH, gpt2:PATH, a server of sglang or vllm",
        )
    head = _head(wish, teacher, policy)
    write_head(wish.folder, head)
    keep_tokenizer(policy.tokenizer, wish.folder / TOKENIZER)
    problems = list(task.problems("all"))
    params = SamplingParams(temperature=wish.temperature)
    asked = there = positions = 0
    with closing(Answers(wish.folder)) as kept:
        known = kept.keys()
        for start in range(0, len(problems), wish.at_once):
            part = problems[start : start + wish.at_once]
            groups = await sample_groups(sampler, policy, task, part, params)
            named: list[tuple[str, str]] = []
            fresh: dict[str, Trajectory] = {}  # equal sequences are asked about once
            for group in groups:
                for trajectory in group.trajectories:
                    _refuse_pictures(trajectory)
                    ids = asked_of(trajectory.tokens, trajectory.mask)
                    key = key_of(head.tokenizer, ids, wish.temperature)
                    named.append((key, group.problem.digest))
                    if key in known:
                        there += 1
                    else:
                        known.add(key)
                        fresh[key] = trajectory
            answers = await _answers(teacher, list(fresh.values()), head)
            kept.add(dict(zip(fresh, answers, strict=True)), named)
            positions += sum(map(len, answers))
            asked += len(fresh)
            tell(min(start + wish.at_once, len(problems)), len(problems))
    return Made(asked=asked, known=there, positions=positions)


async def _answers(
    teacher: Teacher, trajectories: Sequence[Trajectory], head: Head
) -> list[np.ndarray]:
    if not trajectories:
        return []
    places = [np.flatnonzero(trajectory.mask) for trajectory in trajectories]
    questions = [
        TeacherRequest(
            ids=asked_of(t.tokens, t.mask),
            start=int(at[0]),
            k=head.k,
            temperature=head.temperature,
        )
        for t, at in zip(trajectories, places, strict=True)
    ]
    answers = await teacher_scores(teacher, questions)
    found = []
    for question, at, answer in zip(questions, places, answers, strict=True):
        picked = answer.rows(at - question.start)
        if reason := _fault(picked, head):
            raise BackendError(
                f"teacher {head.teacher} was asked about {len(question.ids)} tokens.",
                f"found: {reason}",
                "what it said before is kept; mend the teacher and give the command again",
            )
        found.append(rows_of(picked, at, head.k))
    return found


def _refuse_pictures(trajectory: Trajectory) -> None:
    """Answers are kept by their tokens, which do not tell what is on a picture."""
    if trajectory.pictures:
        raise ConfigError(
            f"a teacher's answers to {trajectory.problem_id} were to be kept.",
            f"found: {len(trajectory.pictures)} pictures, which the model sees: answers are "
            "kept by tokens alone",
            "use the teacher itself in the run (--teacher hf:PATH)",
        )


def _fault(answer: TopK, head: Head) -> str:
    """The reason why an answer is useless; "" if it is none."""
    inside = answer.ids >= 0
    if np.isnan(answer.logprobs).any() or not np.isfinite(answer.actual).all():
        return "a logprob that is not a number"
    if int(answer.ids.max(initial=-1)) >= head.vocab_size:
        return f"token id {answer.ids.max()}, the tokenizer has {head.vocab_size}"
    total = np.exp(np.where(inside, answer.logprobs, -np.inf).astype(np.float64)).sum(-1)
    return f"probabilities that sum to {total.max():.4f}" if (total > 1.001).any() else ""


def _head(wish: Wish, teacher: Teacher, policy: Policy) -> Head:
    able, name = teacher.capabilities, teacher.name
    own = fingerprint(policy.tokenizer)
    theirs = able.tokenizer or fingerprint(teacher.tokenizer)
    if own != theirs:
        raise ConfigError(
            f"the answers of teacher {name} were to be kept for a student.",
            "found: they have different tokenizers, and its ids would mean nothing",
            "use the teacher itself in the run (--teacher), which aligns the two",
        )
    size = policy.tokenizer.vocab_size
    k = min(wish.k, size)
    if able.max_k and k > able.max_k:
        found, do = f"it gives at most {able.max_k} tokens a position", f"give --k {able.max_k}"
    elif able.temperatures is not None and wish.temperature not in able.temperatures:
        known = ", ".join(f"{t:g}" for t in able.temperatures)
        found, do = f"it scores at temperature {known} only", "give one of these as --temperature"
    else:
        return Head(
            teacher=name,
            tokenizer=own,
            k=k,
            temperature=wish.temperature,
            context_length=teacher.context_length,
            vocab_size=size,
        )
    asked = f"{k} tokens a position at temperature {wish.temperature:g}"
    raise ConfigError(f"teacher {name} was to tell {asked}.", f"found: {found}", do)
