"""A problem with another harness, which compares an answer with a design known to be right."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from rlvr_cvdp.datasets.compose import parse_services
from rlvr_cvdp.datasets.from_public.golden import equivalence_harness
from rlvr_cvdp.hdl.clocks import clocking_of
from rlvr_cvdp.hdl.names import module_names
from rlvr_cvdp.hdl.ports import PortsError, header_of
from rlvr_cvdp.netlist.proof import simulated
from rlvr_cvdp.paths import VERILOG
from rlvr_cvdp.problem import CvdpProblem

_CYCLES, _EPISODES = 1000, 4


def twin_problem(record: CvdpProblem, golden: Mapping[str, str]) -> CvdpProblem | None:
    """
    The problem judged by random inputs beside `golden`, after reset (`equivalence`).

    None where the two cannot be driven: several files, or a top module whose ports are not plain.
    """
    sources, top = simulated(record)
    hdl = [path for path in golden if path.endswith(VERILOG)]
    if len(record.targets) != 1 or tuple(golden) != record.targets or not hdl:
        return None
    (target,) = record.targets
    text = golden[target]
    top = top or (module_names(text) or [""])[-1]
    if top not in module_names(text):
        return None
    try:
        header = header_of(text, top)
    except PortsError:
        return None
    given = [path.removeprefix("/code/") for path in sources]
    harness = equivalence_harness(
        text,
        top,
        header,
        clocking_of(text, header.named("input")),
        target=target,
        given=[path for path in given if path != target and path in record.context],
        suffix=f"_{record.digest()[:12]}",
        cycles=_CYCLES,
        episodes=_EPISODES,
    )
    services = parse_services(harness)
    return evolve(record, harness=harness, services=services, generation=2, needs=())
