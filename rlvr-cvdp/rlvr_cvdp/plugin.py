"""What rlvr-cvdp offers. Imports nothing heavy: parts are named, and imported when chosen."""

from __future__ import annotations

from collections.abc import Iterable

from rlvr import BackendSpec, Check, CommandSpec, RewardSpec, SamplerSpec, TaskSpec, hookimpl

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
"""What suits the starter model on the starter set: learns within minutes on two cores."""


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
    """What verification needs of the machine."""
    named = {
        "bubblewrap": "sandboxes can be made",
        "iverilog": "the simulator",
        "libpython": "the library that the simulator embeds",
        "cocotb2": "the stack of today's harnesses",
    }
    for name, summary in named.items():
        yield Check(
            name=f"cvdp-{name}", target=f"rlvr_cvdp.commands.doctor:{name}", summary=summary
        )
    optional = {
        "verilator": "lint services and cvdp.syntax=verilator",
        "yosys": "synthesis services",
        "cocotb1": "the stack of harnesses written for cocotb 1",
    }
    for name, summary in optional.items():
        yield Check(
            name=f"cvdp-{name}",
            target=f"rlvr_cvdp.commands.doctor:{name}",
            summary=summary,
            required=False,
        )
    built = {
        "rootfs": "a root with iverilog 12 for the bubblewrap sandbox",
        "docker": "the Docker sandbox: a daemon and the image",
    }
    for name, summary in built.items():
        yield Check(
            name=f"cvdp-{name}",
            target=f"rlvr_cvdp.images.checks:{name}",
            summary=summary,
            required=False,
        )
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
        CommandSpec(
            name="setup",
            target="rlvr_cvdp.commands.setup:setup",
            summary="Make the cocotb stacks that harnesses need",
        ),
        CommandSpec(
            name="calibrate",
            target="rlvr_cvdp.commands.calibrate:calibrate",
            summary="Time the right answers of a data set, for limits of single problems",
        ),
        CommandSpec(
            name="list",
            target="rlvr_cvdp.commands.setup:list_problems",
            summary="Problems of a data set, and why some cannot be verified",
        ),
        CommandSpec(
            name="export",
            target="rlvr_cvdp.commands.exchange:export_prompts",
            summary="Write prompts as the official runner's local_export does",
        ),
        CommandSpec(
            name="import",
            target="rlvr_cvdp.commands.exchange:import_completions",
            summary="Write completions for the official runner's local_import",
        ),
        CommandSpec(
            name="waves",
            target="rlvr_cvdp.commands.waves:waves",
            summary="Waveforms of the failing simulations of one answer",
        ),
        CommandSpec(
            name="build-rootfs",
            target="rlvr_cvdp.images.commands:rootfs",
            summary="Build a Debian root for the bubblewrap sandbox (needs root)",
        ),
        CommandSpec(
            name="build-image",
            target="rlvr_cvdp.images.commands:image",
            summary="Build a Docker image with the simulator and both cocotb stacks",
        ),
    ]
