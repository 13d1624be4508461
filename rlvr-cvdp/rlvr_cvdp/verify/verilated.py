"""
The same tests in another simulator: Verilator, where it can run them at all.

A race, an x and an order that the language leaves open come out otherwise there. Whether it can run
a harness is asked of the reference; what it says of an answer that it cannot compile is nothing.
What its simulation reports travels over pytest and the log alone: good enough for a second opinion,
which can only object, and no part of a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from rlvr_cvdp.launch.service import RunSettings, service_environment
from rlvr_cvdp.launch.tree import write_tree
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.results.plain import is_plain
from rlvr_cvdp.toolchain.toolchain import digest_of

_CPU_S = 120.0
"""Compiling a small design for one launch takes seconds; a harness of many is left out."""
_SOURCES = {
    # g++ without optimisation: of what it compiles for a launch, little runs for long.
    "src/.rlvr_quick.mk": "override OPT_FAST = -O0\noverride OPT_GLOBAL = -O0\n"
    "override OBJCACHE = sh /code/src/.rlvr_objects.sh\n",
    "src/.rlvr_objects.sh": """\
# A compiler's command: what Verilator brings itself is compiled for a reference, then taken again.
for last; do :; done
case $last in */include/verilated*.cpp) ;; *) exec "$@" ;; esac
name=$(echo "$*" | cksum | tr ' ' -).o
out=$(echo "$*" | sed 's/.* -o \\([^ ]*\\) .*/\\1/')
if [ -f /code/src/.rlvr_objects/"$name" ]; then exec cp /code/src/.rlvr_objects/"$name" "$out"; fi
"$@" || exit
mkdir -p /code/rundir/.rlvr_objects && cp "$out" /code/rundir/.rlvr_objects/"$name"
""",
    "src/.rlvr_verilated.mk": "verilator.o: CPPFLAGS += -include /code/src/.rlvr_verilated.h\n",
    "src/.rlvr_verilated.h": """\
// cocotb 2's main program for Verilators that have no VerilatedVpi::evalNeeded yet.
#include "verilated.h"
#include "verilated_vpi.h"
#if VERILATOR_VERSION_INTEGER < 5026000
static bool rlvr_again = false;
static inline bool rlvr_call(unsigned reason) {
    const bool called = VerilatedVpi::callCbs(reason);
    rlvr_again |= called;
    return called;
}
static inline bool rlvr_take() {
    const bool again = rlvr_again;
    rlvr_again = false;
    return again;
}
#define callCbs(reason) callValueCbs(), rlvr_call(reason)
#define clearEvalNeeded callValueCbs
#define doInertialPuts callValueCbs
#define evalNeeded() callValueCbs() || rlvr_take()
#endif
""",
}

_OBJECTS = ".rlvr_objects"

_references: dict[str, bool] = {}
"""Whether references pass their tests in Verilator, by all that decides it."""
_objects: dict[str, dict[str, bytes]] = {}
"""
Verilator's own sources, compiled, by the toolchain and their command: most of a compilation. They
are taken from runs of references alone; an answer's could be anything.
"""


async def passes_verilated(
    problem: CvdpProblem, files: Mapping[str, str], settings: RunSettings
) -> bool | None:
    """
    Whether an answer passes its tests in Verilator; None where that cannot be said.

    It cannot where there is no Verilator, where the reference does not pass there or there is
    none, and where no simulation of the answer comes to an end.

    Raises:
        VerifierError: The sandbox could not run.
    """
    toolchain = settings.sandbox.toolchain
    is_simulated = any(service.runs_cocotb and not service.tool for service in problem.services)
    if "verilator" not in toolchain.tools or not problem.reference or not is_simulated:
        return None
    reference = dict(problem.reference)
    key = digest_of([problem.digest(), toolchain.digest, settings.seed, reference])
    if key not in _references:
        _references[key] = await _run(problem, reference, settings, is_kept=True) is True
    if not _references[key]:
        return None
    return dict(files) == reference or await _run(problem, files, settings)


async def _run(
    problem: CvdpProblem,
    files: Mapping[str, str],
    settings: RunSettings,
    *,
    is_kept: bool = False,
) -> bool | None:
    """Whether the tests pass; None where one did not come to its end."""
    objects = _objects.setdefault(settings.sandbox.toolchain.digest, {})
    limits, stack = settings.limits, settings.stack
    limits = evolve(limits, cpu_s=min(limits.cpu_s, _CPU_S), wall_s=min(limits.wall_s, 5 * _CPU_S))
    makefiles = ["quick", "verilated"] if stack.generation == 2 else ["quick"]
    own = {"SIM": "verilator"}
    own["MAKEFILES"] = " ".join(f"/code/src/.rlvr_{name}.mk" for name in makefiles)
    async with settings.sandbox.slot(stack) as slot:
        write_tree(slot.folder, problem, files)
        tree = slot.folder / "tree"
        for path, text in _SOURCES.items():
            (tree / path).write_text(text, encoding="utf-8")
        (tree / "src" / _OBJECTS).mkdir()
        for name, compiled in objects.items():
            (tree / "src" / _OBJECTS / name).write_bytes(compiled)
        for service in problem.services:
            if service.tool or not service.runs_cocotb:
                continue
            ended = await slot.run(
                service.command,
                environment={**service_environment(service, stack, settings.seed, True), **own},
                limits=limits,
                working_dir=service.working_dir,
            )
            for made in (tree / "rundir" / _OBJECTS).glob("*.o") if is_kept else ():
                if is_plain(made):
                    objects[made.name] = made.read_bytes()
            if any(failed for _, _, failed, _ in ended.summaries):
                return False
            if ended.rc != 0 or not ended.summaries:
                return None
    return True
