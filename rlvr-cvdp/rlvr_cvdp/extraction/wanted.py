"""The files and modules that a problem asks for."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from rlvr import FrozenMap
from rlvr_cvdp.extraction.traits import stem
from rlvr_cvdp.hdl.definitions import definitions_of
from rlvr_cvdp.paths import HDL
from rlvr_cvdp.problem import CvdpProblem


@frozen(kw_only=True)
class Wanted:
    """
    The files and modules that a problem asks for.

    Attributes:
        targets: Their paths.
        modules: For each target the modules that it should define, those of its context first.
        initial: The text that a target has in the context.
        given: The context's other files, which the harness compiles or the answer may include.
        tops: Modules that the harness simulates.
        prompt: The request, for the names in it.
    """

    targets: tuple[str, ...]
    modules: Mapping[str, tuple[str, ...]] = field(factory=dict, converter=FrozenMap)
    initial: Mapping[str, str] = field(factory=dict, converter=FrozenMap)
    given: Mapping[str, str] = field(factory=dict, converter=FrozenMap)
    tops: tuple[str, ...] = ()
    prompt: str = ""

    def names(self, target: str) -> tuple[str, ...]:
        """Modules that the target should define; by default one with the file's name."""
        return self.modules.get(target) or (stem(target),)

    def mains(self, target: str) -> frozenset[str]:
        """The modules that the file is about; its other modules are helpers."""
        names = set(self.names(target))
        given = {d.name for d in definitions_of(self.initial.get(target, ""))}
        return frozenset({stem(target)} & given or set(self.tops) & given or names)


def wanted_of(problem: CvdpProblem) -> Wanted:
    """The files and modules that a problem's context, harness and request ask for."""
    targets, context = problem.targets, problem.context
    tops = sorted({service.top for service in problem.services} - {""})
    sources = {path for service in problem.services for path in service.sources}
    given = {p: text for p, text in context.items() if p not in targets and p.endswith(HDL)}
    initial = {path: context[path] for path in targets if path in context}
    names = {
        path: [d.name for d in definitions_of(text)] for path, text in {**given, **initial}.items()
    }
    elsewhere = {name for found in names.values() for name in found} | {stem(p) for p in targets}
    hdl = [path for path in targets if path.endswith(HDL)]
    free = [top for top in tops if top not in elsewhere] if len(hdl) == 1 else []
    return Wanted(
        targets=targets,
        modules={p: tuple(dict.fromkeys([*names.get(p, ()), stem(p), *free])) for p in hdl},
        initial=initial,
        given={path: text for path, text in given.items() if not sources or path in sources},
        tops=tuple(tops),
        prompt=problem.prompt,
    )
