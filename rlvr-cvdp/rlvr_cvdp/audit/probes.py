"""The answers that `rlvr audit` tries on a problem's harness."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from rlvr import Probe, Problem, Trajectory
from rlvr_cvdp.audit.compiles import CompileCheck, compile_check
from rlvr_cvdp.audit.edits import Edit, edits
from rlvr_cvdp.audit.equivalence import compare
from rlvr_cvdp.audit.ports import hollow
from rlvr_cvdp.paths import VERILOG
from rlvr_cvdp.problem import CvdpProblem

_FENCE = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_BLOCKS = 3


def probes(
    problem: Problem, reference: Mapping[str, str] | None, *, count: int, seed: int
) -> Iterator[Probe]:
    """
    Wrong answers: trivial ones, then up to `count` mutants of the reference that compile.

    The mutants are drawn from all kinds in turn, each kind in an order that the seed decides, so
    that a larger `count` only adds to them.
    """
    record = problem.payload
    if not isinstance(record, CvdpProblem) or record.is_comprehension:
        return
    yield from _given(problem, record, reference)
    if reference and any(path.endswith(VERILOG) for path in reference):
        with compile_check(record, reference) as accepts:
            yield from _hollow(problem, reference, accepts)
            yield from _mutants(problem, reference, accepts, count, seed)


def is_equivalent(
    problem: Problem, reference: Mapping[str, str] | None, probe: Probe
) -> bool | None:
    """Whether a mutant is proven to be the same hardware as the reference."""
    mutant = probe.trajectory.files
    if not reference or mutant is None or not isinstance(problem.payload, CvdpProblem):
        return None
    finding = compare(problem.payload, reference, mutant)
    return None if finding == "undecided" else finding == "equivalent"


def _given(
    problem: Problem, record: CvdpProblem, reference: Mapping[str, str] | None
) -> Iterator[Probe]:
    """Answers without any work: an empty one, the given files, the words of the prompt."""
    text = partial(Trajectory.from_text, problem.id)
    yield Probe(kind="empty", trajectory=text(""))
    initial = {path: record.context[path] for path in record.targets if path in record.context}
    if any(body.strip() for body in initial.values()) and not _same(initial, reference):
        files = Trajectory(problem_id=problem.id, files=initial)
        yield Probe(kind="initial", trajectory=files, note="the given files, unchanged")
    yield Probe(kind="copied-prompt", trajectory=text(record.prompt), note="its whole text")
    said = "\n".join(message.content for message in problem.prompt)
    blocks = [body for body in _FENCE.findall(said) if body.strip()]
    for number, body in enumerate(dict.fromkeys(blocks[:_BLOCKS]), start=1):
        if reference and body.strip() in {value.strip() for value in reference.values()}:
            continue
        block = f"```verilog\n{body}```"
        yield Probe(kind="copied-prompt", trajectory=text(block), note=f"its code block {number}")


def _same(initial: Mapping[str, str], reference: Mapping[str, str] | None) -> bool:
    return reference is not None and all(reference.get(p) == body for p, body in initial.items())


def _hollow(
    problem: Problem, reference: Mapping[str, str], accepts: CompileCheck
) -> Iterator[Probe]:
    """Modules with the right ports and nothing behind them, all files at once."""
    hollows = (
        ("stub", "ports only", ""),
        ("constant-outputs", "outputs are 0", "'0"),
        ("constant-outputs", "outputs are all ones", "'1"),
    )
    for kind, note, value in hollows:
        files = {p: hollow(t, value) if p.endswith(VERILOG) else t for p, t in reference.items()}
        changed = {path: text for path, text in files.items() if text != reference[path]}
        if changed and all(accepts(path, text) for path, text in changed.items()):
            trajectory = Trajectory(problem_id=problem.id, files=files)
            yield Probe(kind=kind, trajectory=trajectory, note=note)


def _mutants(
    problem: Problem, reference: Mapping[str, str], accepts: CompileCheck, count: int, seed: int
) -> Iterator[Probe]:
    drawn = 0
    for path, edit in _in_turn(reference, f"{seed} {problem.id}"):
        if drawn == count:
            return
        text = edit.apply(reference[path])
        if accepts(path, text):
            drawn += 1
            files = {**reference, path: text}
            yield Probe(
                kind=edit.kind,
                trajectory=Trajectory(problem_id=problem.id, files=files),
                note=f"{path} {edit.note(reference[path])}",
                is_mutant=True,
            )


def _in_turn(reference: Mapping[str, str], seed: str) -> Iterable[tuple[str, Edit]]:
    """Edits of all files, one of each kind after the other, shuffled within a kind."""
    kinds: dict[str, list[tuple[str, Edit]]] = defaultdict(list)
    for path, text in reference.items():
        if path.endswith(VERILOG):
            for edit in edits(text):
                kinds[edit.kind].append((path, edit))
    rng = random.Random(seed)
    queues = [kinds[kind] for kind in sorted(kinds)]
    for queue in queues:
        rng.shuffle(queue)
    while any(queues):
        for queue in queues:
            if queue:
                yield queue.pop()
