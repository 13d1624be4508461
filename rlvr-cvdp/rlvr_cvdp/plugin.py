"""The parts that rlvr-cvdp offers, by name: each is imported when it is chosen."""

from __future__ import annotations

from collections.abc import Iterable

from rlvr import BackendSpec, Check, CommandSpec, RewardSpec, SamplerSpec, TaskSpec, hookimpl
from rlvr_cvdp import DATA

RLVR_API = 1

STARTER = {
    "run.steps": 24,
    "train.problems": 8,
    "train.lr": 4e-4,
    "train.warmup": 2,
    "sampler.group_size": 8,
    "sampler.max_tokens": 280,
    "eval.samples": 4,
    "checkpoint.every": 12,
    "cvdp.timeout_s": 10.0,
}
"""Options for the starter model on the starter set: learns within minutes on two cores."""

_CHECKS = (
    ("bubblewrap", "commands.doctor", True, "sandboxes can be made"),
    ("iverilog", "commands.doctor", True, "the simulator"),
    ("libpython", "commands.doctor", True, "the library that the simulator embeds"),
    ("cocotb2", "commands.doctor", True, "the stack of today's harnesses"),
    ("verilator", "commands.doctor", False, "lint services and cvdp.syntax=verilator"),
    ("yosys", "commands.doctor", False, "synthesis services"),
    ("cocotb1", "commands.doctor", False, "the stack of harnesses written for cocotb 1"),
    ("rootfs", "commands.doctor", False, "a root with iverilog 12 for the bubblewrap sandbox"),
    ("docker", "commands.doctor", False, "the Docker sandbox: a daemon and the image"),
)
"""Name, module, whether it is required, and what it is for."""

_COMMANDS = (
    ("setup", "commands.setup:setup", "Make the cocotb stacks that harnesses need"),
    (
        "calibrate",
        "commands.calibrate:calibrate",
        "Time the right answers of a data set, for limits of single problems",
    ),
    (
        "list",
        "commands.setup:list_problems",
        "Problems of a data set, and why some cannot be verified",
    ),
    (
        "export",
        "commands.exchange:export_prompts",
        "Write prompts as the official runner's local_export does",
    ),
    (
        "import",
        "commands.exchange:import_completions",
        "Write completions for the official runner's local_import",
    ),
    ("waves", "commands.waves:waves", "Waveforms of the failing simulations of one answer"),
    (
        "build-rootfs",
        "commands.images:rootfs",
        "Build a Debian root for the bubblewrap sandbox (needs root)",
    ),
    (
        "build-image",
        "commands.images:image",
        "Build a Docker image with the simulator and both cocotb stacks",
    ),
)


@hookimpl
def rlvr_tasks() -> Iterable[TaskSpec]:
    """One task: the embedded starter set, or any CVDP data set."""
    return [
        TaskSpec(
            name="cvdp",
            target="rlvr_cvdp.task:CvdpTask",
            summary="Write Verilog that passes the problem's own cocotb tests",
            config="rlvr_cvdp.config:CvdpConfig",
            namespace="cvdp",
            reward="cvdp",
            starter="rlvr_cvdp.starter.model_path:starter_model",
            presets={"starter": STARTER},
            fit="rlvr_cvdp.fitting:fit",
            data=DATA,
        )
    ]


@hookimpl
def rlvr_rewards() -> Iterable[RewardSpec]:
    """One reward: stages up to the harness's verdict."""
    return [
        RewardSpec(
            name="cvdp",
            target="rlvr_cvdp.verify.reward:CvdpReward",
            summary="Format, syntax, compilation and tests, judged in a sandbox",
            config="rlvr_cvdp.config:CvdpConfig",
            namespace="cvdp",
            bounds=(0.0, float("inf")),  # cvdp.tests_weight is the highest
        )
    ]


@hookimpl
def rlvr_backends() -> Iterable[BackendSpec]:
    """Agents in containers of their own, by the official agentic protocol."""
    return [
        BackendSpec(
            name="agent",
            target="rlvr_cvdp.agents.backend:AgentBackend",
            summary="An agent in a Docker image that edits the files of a CVDP problem",
            config="rlvr_cvdp.agents.config:AgentConfig",
            models=("agent",),
            sampler="agent",
            trains=False,
        )
    ]


@hookimpl
def rlvr_samplers() -> Iterable[SamplerSpec]:
    """Runs of such an agent."""
    return [
        SamplerSpec(
            name="agent",
            target="rlvr_cvdp.agents.sampler:AgentSampler",
            summary="G runs of an agent's container a problem",
        )
    ]


@hookimpl
def rlvr_checks() -> Iterable[Check]:
    """Checks of the machine before a verification."""
    for name, where, is_required, summary in _CHECKS:
        target = f"rlvr_cvdp.{where}:{name}"
        yield Check(name=f"cvdp-{name}", target=target, summary=summary, required=is_required)
    yield Check(
        name="cvdp-proof",
        target="rlvr_cvdp.commands.doctor:proof",
        summary="two right answers pass, an empty one fails",
        is_slow=True,
    )


@hookimpl
def rlvr_commands() -> Iterable[CommandSpec]:
    """Subcommands of `rlvr cvdp`: stacks, data sets, exchange, waveforms, images."""
    return [
        CommandSpec(name=name, target=f"rlvr_cvdp.{target}", summary=summary)
        for name, target, summary in _COMMANDS
    ]
