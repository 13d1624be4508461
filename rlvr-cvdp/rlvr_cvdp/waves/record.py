"""Runs an answer's harness once more and keeps the waveforms of its simulations."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import evolve, frozen

from rlvr_cvdp.launch.service import RunSettings, ServiceResult, run_service
from rlvr_cvdp.launch.tree import write_tree
from rlvr_cvdp.problem import CvdpProblem, Service
from rlvr_cvdp.results.plain import is_plain
from rlvr_cvdp.sandbox import SandboxLease

_PLUGIN = Path(__file__).resolve().parent.parent / "inside" / "rlvr_waves.py"
_KEPT = "rlvr_waves"
FORMS = ("fst", "vcd")


@frozen(kw_only=True)
class Wave:
    """A waveform; `launch` is the number of its launch, 0 where that is not known."""

    service: str
    launch: int
    is_failed: bool
    path: Path


@frozen(kw_only=True)
class Recording:
    """The results of the services, and waveforms: of failing launches if there are any."""

    services: tuple[ServiceResult, ...]
    waves: tuple[Wave, ...]


async def record_waves(
    problem: CvdpProblem,
    files: Mapping[str, str],
    settings: RunSettings,
    *,
    out: Path,
    test: str = "",
    form: str = "fst",
    is_each: bool = False,
) -> Recording:
    """
    Judge the files of an answer with waves on, to the end of each service.

    The waveforms go to the folder `out`: of launches that hold the cocotb test `test`, "" for all.
    `form` is "fst", or "vcd", which stays readable where a simulation was ended. `is_each`: of all
    launches, and only what the top module itself declares.

    Raises:
        VerifierError: The harness could not be run.
    """
    harness = {**problem.harness, f"src/{_PLUGIN.name}": _PLUGIN.read_text()}
    problem = evolve(problem, harness=harness)
    asked = {"RLVR_WAVES_TEST": test, "RLVR_WAVES_FORM": form}
    asked |= {"WAVES": "1", "RLVR_WAVES_EACH": "1" if is_each else ""}
    settings = evolve(settings, stop_at_first=False, extra=asked)
    results: list[ServiceResult] = []
    waves: list[Wave] = []
    async with settings.sandbox.slot(settings.stack) as slot:
        write_tree(slot.folder, problem, files)
        for service in problem.services:
            service = evolve(service, environment={**service.environment, **_asking(service)})
            result = await run_service(problem, service, slot, settings)
            results.append(result)
            waves += _taken(slot, result, out, test, form)
    failed = [wave for wave in waves if wave.is_failed]
    for wave in waves:
        if failed and not wave.is_failed:
            wave.path.unlink()
    return Recording(services=tuple(results), waves=tuple(failed or waves))


def _asking(service: Service) -> dict[str, str]:
    """The variables that load the plugin besides the service's own plugins."""
    path = service.environment.get("PYTHONPATH") or "/src"
    options = service.environment.get("PYTEST_ADDOPTS", "")
    return {
        "PYTHONPATH": path if "/src" in path.split(":") else f"{path}:/src",
        "PYTEST_ADDOPTS": f"{options} -p {_PLUGIN.stem}".strip(),
    }


def _taken(
    slot: SandboxLease, result: ServiceResult, out: Path, test: str, form: str
) -> Iterator[Wave]:
    """The service's waveforms, copied to `out`."""
    rundir = slot.folder / "tree" / "rundir"
    if rundir.is_symlink() or (rundir / _KEPT).is_symlink():  # it leads out of the sandbox
        return
    kept = sorted(path for path in (rundir / _KEPT).glob(f"*.{form}") if is_plain(path))
    found = [(int(p.name.split(".")[0]), p.name.split(".")[1] == "failed", p) for p in kept]
    if result.stopped or (not found and not test):
        # It was ended in the middle, or it does not use cocotb's runner.
        loose = [p for p in rundir.rglob("*.[fv][sc][td]") if is_plain(p)]
        loose = [path for path in loose if path.parent.name != _KEPT]
        loose.sort(key=lambda path: path.stat().st_mtime)
        found += [(0, True, path) for path in loose[-1:]]
    out.mkdir(parents=True, exist_ok=True)
    for launch, is_failed, path in sorted(found):
        place = out / f"{result.name}-{launch or 'last'}.{form}"
        shutil.copyfile(path, place)
        yield Wave(service=result.name, launch=launch, is_failed=is_failed, path=place)
    shutil.rmtree(rundir / _KEPT, ignore_errors=True)
