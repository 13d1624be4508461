"""A task that annotates its tokens and knows wrong answers: sums of two digits."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from rlvr import Episode, Message, Probe, Problem, SingleTurn, Task, Trajectory

SUMS = {"train": [(1, 2), (3, 4), (5, 6)], "test": [(7, 8), (9, 9)]}


class Sums(Task):
    """The answer is a number; "3" and "03" are the same one."""

    def problems(self, split: str) -> Iterable[Problem]:
        for name in SUMS if split == "all" else [split]:
            for a, b in SUMS[name]:
                prompt = (Message(role="user", content=f"{a} plus {b}?"),)
                yield Problem(id=f"{a}+{b}", prompt=prompt, split=name, payload=a + b)

    def episode(self, problem: Problem) -> Episode:
        return SingleTurn(problem.prompt)

    def reference(self, problem: Problem) -> Trajectory:
        return Trajectory.from_text(problem.id, str(problem.payload))

    def annotate(self, problem: Problem, trajectory: Trajectory) -> Mapping[str, Sequence[float]]:
        """Numbers (T,): which tokens the policy wrote. They stand in `datum.annotations`."""
        return {"sums/own": trajectory.mask.astype(np.float32)}

    def probes(self, problem: Problem, *, count: int, seed: int) -> Iterable[Probe]:
        """Right ones, trivial ones, and `count` mutants: the same for every seed here."""
        right = problem.payload

        def probe(kind: str, text: str, is_right: bool = False, is_mutant: bool = False) -> Probe:
            said = Trajectory.from_text(problem.id, text)
            return Probe(kind=kind, trajectory=said, is_right=is_right, is_mutant=is_mutant)

        yield probe("empty", "")
        yield probe("reference", str(right), is_right=True)
        yield probe("zeros", f"0{right}", is_mutant=True)
        for step in range(1, count + 1):
            yield probe("off", str(right + step), is_mutant=True)

    def prove(self, problem: Problem, probe: Probe) -> bool | None:
        """A mutant that is the same number is no fault of a verifier that accepts it."""
        text = probe.trajectory.completion
        return int(text) == problem.payload if text.isdecimal() else None
