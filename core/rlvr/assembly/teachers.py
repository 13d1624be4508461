"""Choose, open and check teachers: frozen models that score what the policy wrote."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import attrs

from rlvr.assembly.build_part import build, opened
from rlvr.assembly.configured import NO_TASK, STARTER
from rlvr.border.calls import told_by
from rlvr.border.promises import policy_of
from rlvr.config.layers import Layer, resolve
from rlvr.errors import ConfigError, PluginError
from rlvr.install import pip_install
from rlvr.log import get
from rlvr.parts import Backend, BuildContext, LearningPart, Policy, Teacher, Tokenizer
from rlvr.plugins.host import PluginHost
from rlvr.plugins.known import MODELS, distribution_for
from rlvr.records.read_runs import weights_of
from rlvr.specs import TaskSpec, TeacherSpec
from rlvr.teachers.requests import introduce
from rlvr.teachers.route_spec import models_of, routes_of
from rlvr.teachers.routed import RoutedTeacher
from rlvr.teachers.same_tokenizer import difference, warn_of_frame
from rlvr.types import SamplingParams

if TYPE_CHECKING:
    from rlvr.assembly.configured import Chosen, Configured

log = get(__name__)

_BACKENDS = frozenset({"policy", "reference", "value", "return"})
"""Annotations that a backend or an advantage makes: no teacher may take their names."""


def teacher_keys(chosen: Chosen) -> tuple[str, ...]:
    """The options that hold model specs of teachers."""
    specs = [spec for spec in (chosen.advantage, chosen.loss) if spec is not None]
    return tuple(dict.fromkeys(key for spec in specs for key in spec.teachers))


def choose_teachers(
    chosen: Chosen, layers: Sequence[Layer], specs: Mapping[str, type], host: PluginHost
) -> Chosen:
    """
    The chosen parts with the specs of the teachers that the options name.

    These options are resolved before all others: they decide which teachers' options exist.

    Raises:
        PluginError: No plugin takes a teacher's model, or several do.
    """
    keys = teacher_keys(chosen)
    if not keys:
        return chosen
    only = [
        attrs.evolve(y, values={k: v for k, v in y.values.items() if k in keys}) for y in layers
    ]
    namespaces = {key.partition(".")[0] for key in keys}
    options = resolve({name: cls for name, cls in specs.items() if name in namespaces}, only)
    models = [m for key in keys for m in models_of(str(options.values[key] or ""))]
    if chosen.task is NO_TASK:  # whose starter would be meant?
        models = [m for m in models if m != STARTER]
    found = {m: teacher_for(model_of(m, chosen.task), host) for m in models}
    return attrs.evolve(chosen, teachers=tuple(dict.fromkeys(found.values())))


def teacher_for(model: str, host: PluginHost) -> TeacherSpec:
    """
    The only teacher that takes the model spec's scheme.

    Raises:
        PluginError: There is none, or several.
    """
    scheme = model.partition(":")[0]
    takers = [spec for spec in host.teachers() if scheme in spec.models]
    asked = f"the teacher '{model}' was asked for."
    if takers:
        return _only(takers, asked, "take")
    known = sorted({f"{s}:..." for spec in host.teachers() for s in spec.models})
    ours = distribution_for("backend", MODELS.get(scheme, ""))
    raise PluginError(
        asked,
        f"found: no plugin takes it; teachers can be: {', '.join(known) or 'none'}",
        f"do: {pip_install(ours)}" if ours else "name a run, or a model, like hf:PATH",
    )


def _only(specs: Sequence[TeacherSpec], asked: str, verb: str, why: str = "") -> TeacherSpec:
    if len(specs) == 1:
        return specs[0]
    names = ", ".join(spec.provider for spec in specs)
    raise PluginError(
        asked,
        f"found: {why}{len(specs)} plugins {verb} it: {names}",
        "disable all but one of them (RLVR_DISABLE_PLUGINS)",
    )


def model_of(
    model: str, task: TaskSpec, instead: str = "name a run, gpt2:new, gpt2:PATH or hf:PATH_OR_ID"
) -> str:
    """
    A model spec, with `starter` resolved to the task's embedded model and a run to its weights.

    Where the task ships none, the error advises what to name `instead`.

    Raises:
        ConfigError: The task ships none.
        CheckpointError: The run saved none.
    """
    if model != STARTER:
        return weights_of(model)
    if task.starter is None:
        raise ConfigError(
            f"task {task.name} ships no starter model.",
            "found: its TaskSpec has no starter=MODULE:FUNCTION, and no other model was named",
            f"{instead}, or give its TaskSpec a starter",
        )
    return told_by(task, task.starter, str, "a model spec")


def teachers_wanted(parts: Sequence[LearningPart]) -> dict[str, str]:
    """
    Model specs by the annotation that the parts ask for.

    Raises:
        PluginError: Two parts mean different teachers by one name, or a name is a backend's.
    """
    wanted: dict[str, str] = {}
    for part in parts:
        for name, model in part.needs.teachers.items():
            if name in _BACKENDS or wanted.setdefault(name, model) != model:
                raise PluginError(
                    f"{type(part).__name__} asks the teacher {model!r} for {name!r}.",
                    "found: that annotation is another model's",
                    "give the teacher's annotation a name of its own",
                )
    return wanted


@asynccontextmanager
async def open_teachers(
    configured: Configured, context: BuildContext, parts: Sequence[LearningPart], backend: Backend
) -> AsyncIterator[dict[str, Teacher]]:
    """
    Build, open and check the teachers that the parts ask for; closed in reverse order.

    Args:
        configured: Options and chosen parts.
        context: Of the run; each teacher is built with its own model spec in it.
        parts: Advantage and loss.
        backend: Trains the policy; open.

    Yields:
        Teachers by annotation; a model that two of them name is opened once. One of several, by
        label, where the option says so (`run.routes`).

    Raises:
        ConfigError: A teacher's tokenizer cannot be aligned, its context is too short, or it cannot
            score at the temperature of what is sampled, or give the distributions of a loss.
        PluginError: No plugin takes a model, or the part's spec does not name the option.
    """
    open_ones: dict[str, tuple[Teacher, Teacher]] = {}  # as it is, and in the policy's tokens
    needs = {name for part in parts for name in part.needs.annotations}
    async with AsyncExitStack() as stack:

        async def one(given: str, name: str) -> Teacher:
            model = model_of(given, configured.chosen.task)
            if model not in open_ones:
                spec = teacher_for(model, configured.host)
                if spec.config and spec.option_namespace not in configured.specs:
                    raise PluginError(
                        f"the teacher '{model}' was asked for.",
                        f"found: its options ({spec.option_namespace}.*) are not known to this run",
                        "the advantage's or loss's spec must name the option: "
                        "AdvantageSpec(teachers=...)",
                    )
                own = attrs.evolve(context, model=model)
                teacher = await opened(stack, configured, spec, own)
                policy = await policy_of(backend)
                open_ones[model] = teacher, check_fit(configured, teacher, policy, context)
            teacher, fitted = open_ones[model]
            if name in needs:
                check_temperature(teacher, context.sampling)
            return fitted

        teachers: dict[str, Teacher] = {}
        for name, given in teachers_wanted(parts).items():
            if routes := routes_of(given):
                teachers[name] = RoutedTeacher({r: await one(r.model, name) for r in routes})
            else:
                teachers[name] = await one(given, name)
        loss = configured.chosen.loss
        introduce(parts, teachers, loss.option_namespace if loss is not None else "")
        yield teachers


def check_fit(
    configured: Configured, teacher: Teacher, policy: Policy, context: BuildContext
) -> Teacher:
    """
    The teacher for the policy's tokens: itself, or an aligned one where its tokenizer differs.

    Raises:
        ConfigError: It cannot read what the policy will write: texts of two tokenizers that do not
            meet, or answers alone are longer than its context.
    """
    name = f"teacher {teacher.name}"
    fitted = in_tokens_of(configured, policy.tokenizer, teacher)
    longest = context.sampling.max_tokens if context.sampling is not None else 0
    if longest >= teacher.context_length:
        raise ConfigError(
            f"answers of up to {longest} tokens were asked for (sampler.max_tokens).",
            f"found: {name} reads {teacher.context_length} tokens, prompt and answer together",
            f"set sampler.max_tokens below {teacher.context_length}, or choose another teacher",
        )
    if fitted is teacher and teacher.context_length < policy.context_length:
        log.warning(
            "teacher_context_shorter",
            teacher=teacher.name,
            reads=teacher.context_length,
            policy_reads=policy.context_length,
            why="a trajectory longer than the teacher reads ends the run",
        )
    return fitted


def in_tokens_of(configured: Configured, student: Tokenizer, teacher: Teacher) -> Teacher:
    """
    The teacher itself where its tokenizer is the student's, by content; else through an adapter.

    Raises:
        PluginError: No plugin adapts teachers, or several do.
        ConfigError: The adapter cannot align the two tokenizers.
    """
    differs = difference(student, teacher.tokenizer)
    if not differs:
        warn_of_frame(student, teacher.tokenizer, f"teacher {teacher.name}")
        return teacher
    adapters = [spec for spec in configured.host.teachers() if spec.adapts]
    asked = f"teacher {teacher.name} was to score what the policy writes."
    why = f"it has another tokenizer: {differs}; and "
    if not adapters:
        raise PluginError(
            asked,
            f"found: {why}no plugin that adapts one to the other",
            f"do: {pip_install('rlvr-distill')}, or choose a teacher whose tokenizer is the "
            "policy's",
        )
    adapter = _only(adapters, asked, "adapt", why)
    notes = {"differs": differs}
    known = BuildContext(model=teacher.name, inner=teacher, tokenizer=student, notes=notes)
    adapted: Teacher = build(configured, adapter, known)
    return adapted


def check_temperature(teacher: Teacher, sampling: SamplingParams | None) -> None:
    """
    Reject a teacher that cannot give logprobs at the sampling temperature.

    Raises:
        ConfigError: Names the temperatures at which it scores.
    """
    able = teacher.capabilities
    if sampling is None or able.temperatures is None:
        return
    if sampling.temperature not in able.temperatures:
        at = ", ".join(f"{t:g}" for t in able.temperatures)
        raise ConfigError(
            f"teacher {teacher.name} was to score what is sampled at temperature "
            f"{sampling.temperature:g}.",
            f"found: it scores at temperature {at} only",
            f"do: set sampler.temperature to {at}, or choose another teacher",
        )
