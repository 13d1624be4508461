"""Answers whose verdict is known: what `rlvr audit` puts to the reward of the house."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from rlvr import Probe, Problem, Segment, Trajectory
from rlvr_household.episode import OBSERVATION, house_of
from rlvr_household.layout import House
from rlvr_household.state import Command, State, Turn, read_turn


def trajectory_of(problem: Problem, texts: Sequence[str]) -> Trajectory:
    """A trajectory of these turns as text, with what the house says between them."""
    state, segments = State(house_of(problem)), []
    for text in texts:
        segments.append(Segment(author="policy", tokens=[], logprobs=[], text=text))
        seen = state.do(read_turn(text).command)
        segments.append(Segment(author="env", tokens=[], text=f"{OBSERVATION} {seen}\n"))
    return Trajectory(problem_id=problem.id, segments=segments[:-1])


def probes(
    problem: Problem, turns: Sequence[Turn], steps: int, *, count: int, seed: int
) -> Iterator[Probe]:
    """
    Wrong answers, the trivial ones first, then about `count` small changes of the solver's turns.

    Whether a change is wrong is known from the house: it is left out where the goal still holds.
    """
    texts, house = [str(turn) for turn in turns], house_of(problem)
    goal = house.goal
    done = "\n".join([*texts, f"{OBSERVATION} {goal.thing} in {goal.target}"])
    wrong: list[tuple[str, list[str]]] = [
        ("empty", [""]),
        ("initial", [house.task]),
        ("claim", [f"Thought: {goal.thing} is in {goal.target}, done"]),
        ("all turns in one", [done]),
        ("last turn only", texts[-1:]),
        ("without the last", texts[:-1]),
        ("thoughts only", [text.partition("\nAction:")[0] for text in texts]),
        ("too late", ["Thought: wait"] * steps + texts),
    ]
    for kind, answer in wrong:
        yield Probe(kind=kind, trajectory=trajectory_of(problem, answer), note=kind)
    yield Probe(kind="reference", trajectory=trajectory_of(problem, texts), is_right=True)
    idle = ["Thought: wait\nAction: go[nowhere]", *texts]
    if len(idle) <= steps:
        yield Probe(kind="idle first", trajectory=trajectory_of(problem, idle), is_right=True)
    yield from _mutants(problem, house, turns, count, seed)


def _mutants(
    problem: Problem, house: House, turns: Sequence[Turn], count: int, seed: int
) -> Iterator[Probe]:
    rng, made = random.Random(f"{seed} {problem.id}"), set[tuple[str, ...]]()
    for _ in range(count):
        changed = list(turns)
        at = rng.randrange(len(changed))
        kind = rng.choice(("left out", "twice", "swapped", "other word"))
        if kind == "left out":
            del changed[at]
        elif kind == "twice":
            changed.insert(at, changed[at])
        elif kind == "swapped":
            changed[at : at + 2] = reversed(changed[at : at + 2])
        else:
            changed[at] = Turn(changed[at].thought, _other(changed[at], house, rng))
        texts = [str(turn) for turn in changed]
        if tuple(texts) in made or _is_solved(house, changed):
            continue
        made.add(tuple(texts))
        note = f"{kind} at turn {at + 1}"
        yield Probe(
            kind="mutant", trajectory=trajectory_of(problem, texts), note=note, is_mutant=True
        )


def _other(turn: Turn, house: House, rng: random.Random) -> Command | None:
    """The command with its last word replaced by another word of the house."""
    if turn.command is None:
        return None
    words = [*house.rooms, *house.places, *(p for own in house.furniture.values() for p in own)]
    if turn.command.second:
        return Command(turn.command.verb, turn.command.first, rng.choice(words))
    return Command(turn.command.verb, rng.choice(words))


def _is_solved(house: House, turns: Sequence[Turn]) -> bool:
    state = State(house)
    for turn in turns:
        state.do(turn.command)
        if state.is_done:
            return True
    return False
