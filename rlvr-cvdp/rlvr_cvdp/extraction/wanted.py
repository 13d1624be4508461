"""What a problem says about the files that its answer must hold."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping

from attrs import field, frozen

from rlvr import FrozenMap
from rlvr_cvdp.extraction.definitions import definitions_of
from rlvr_cvdp.extraction.traits import HDL, stem
from rlvr_cvdp.problem import CvdpProblem


@frozen(kw_only=True)
class Wanted:
    """
    What a problem says about the files to write.

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
        """Modules that the target should define; its own name where nothing says so."""
        return self.modules.get(target) or (stem(target),)

    def mains(self, target: str) -> frozenset[str]:
        """Those of them that the file is about; the others are its helpers."""
        names = set(self.names(target))
        given = {d.name for d in definitions_of(self.initial.get(target, ""))}
        return frozenset({stem(target)} & given or set(self.tops) & given or names)


def wanted_of(problem: CvdpProblem) -> Wanted:
    """What a problem says: its context's modules, what its harness simulates, its request."""
    tops = {service.top for service in problem.services} - {""}
    sources = {path for service in problem.services for path in service.sources}
    given = {path: text for path, text in problem.context.items() if path not in problem.targets}
    given = {path: text for path, text in given.items() if path.endswith(HDL)}
    initial = {path: problem.context[path] for path in problem.targets if path in problem.context}
    key = json.dumps(
        [list(problem.targets), sorted(tops), sorted(given.items()), sorted(initial.items())]
    )
    modules, compiled = _modules(key, tuple(sorted(sources)))
    return Wanted(
        targets=problem.targets,
        modules=modules,
        initial=initial,
        given={path: given[path] for path in compiled},
        tops=tuple(sorted(tops)),
        prompt=problem.prompt,
    )


@functools.lru_cache(maxsize=512)
def _modules(key: str, sources: tuple[str, ...]) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """For each target the modules that it should define, and the given files that are compiled."""
    targets, tops, given, initial = json.loads(key)
    given, initial = dict(given), dict(initial)
    names = {
        path: [d.name for d in definitions_of(text)] for path, text in {**given, **initial}.items()
    }
    elsewhere = {name for path in names for name in names[path]} | {stem(path) for path in targets}
    free = [top for top in tops if top not in elsewhere]
    hdl = [path for path in targets if path.endswith(HDL)]
    modules = {}
    for path in hdl:
        mine = [*names.get(path, ()), stem(path), *(free if len(hdl) == 1 else ())]
        modules[path] = tuple(dict.fromkeys(mine))
    compiled = [path for path in given if not sources or path in sources]
    return modules, compiled
