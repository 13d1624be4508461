"""The light records that plugins yield.

A spec names its part by `"module:object"`, imported only when the part is chosen, so that listing
plugins imports nothing heavy.

`config` names an attrs class whose fields were made with `rlvr.option`; its keys live under
`namespace` (by default the spec's name): `namespace.key=value` on the command line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import attrs
from attrs import field, frozen

from rlvr.errors import ExitCode

__all__ = ["AdvantageSpec", "Advice", "AlgorithmSpec", "BackendSpec", "CallbackSpec", "Check"]
__all__ += ["CheckResult", "CheckpointerSpec", "CommandSpec", "CurriculumSpec", "LossSpec"]
__all__ += ["PartSpec", "RewardSpec", "SamplerSpec", "TaskSpec", "TeacherSpec"]

_KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "bool": (bool,),
    "tuple[str, ...]": (tuple, list),
    "tuple[float, float]": (tuple, list),
    "Mapping[str, Any]": (Mapping,),
    "Mapping[str, Mapping[str, Any]]": (Mapping,),
    "ExitCode": (int,),
}
"""What a field may hold, by its annotation; those of a plugin's own subclasses may be others."""
_HELD = {"tuple[str, ...]": str, "tuple[float, float]": int | float}
"""What its items are."""


def _matches(pattern: str, says: str, _: object, field: Any, value: object) -> None:
    if value is not None and not re.fullmatch(pattern, str(value)):
        kind = ValueError if isinstance(value, str) else TypeError
        raise kind(f"{field.name} = {value!r} {says}")


_OBJECT = r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", "names no object: write 'MODULE:OBJECT'"
_WORD = r"(?!none$)[a-z0-9][a-z0-9_+./-]*", "is no name: write lower-case words, not none"
_TARGET, _NAME = partial(_matches, *_OBJECT), partial(_matches, *_WORD)


@frozen(kw_only=True)
class _Record:
    """Refuses fields of another type when the plugin makes the record: `TypeError` names them."""

    def __attrs_post_init__(self) -> None:
        for one in attrs.fields(type(self)):
            value, said = getattr(self, one.name), str(one.type)
            items = value if said in _HELD and isinstance(value, tuple | list) else ()
            is_held = all(isinstance(item, _HELD[said]) for item in items)
            if not isinstance(value, _KINDS.get(said, object)) or not is_held:
                of = f"{type(self).__name__}.{one.name}"
                raise TypeError(f"{of} = {value!r}, which is no {said} ({type(value).__name__})")


@frozen(kw_only=True)
class NamedRecord(_Record):
    """Common attributes. `provider` is the entry point's name, set by the host."""

    kind: ClassVar[str] = "record"
    name: str = field(validator=_NAME)
    summary: str = ""
    provider: str = ""

    @property
    def full_name(self) -> str:
        """`provider/name`: settles a name that two plugins offer."""
        return f"{self.provider}/{self.name}"


@frozen(kw_only=True)
class PartSpec(NamedRecord):
    """Common attributes of the specs of parts."""

    kind: ClassVar[str] = "part"
    target: str = field(validator=_TARGET)
    config: str | None = field(default=None, validator=_TARGET)
    namespace: str = ""

    @property
    def option_namespace(self) -> str:
        """The prefix of this part's options."""
        return self.namespace or self.name.replace("-", "_").replace("/", "_")


@frozen(kw_only=True)
class TaskSpec(PartSpec):
    """
    A source of problems.

    Attributes:
        reward: Name of the reward it goes with unless another one is asked for.
        starter: `module:function` giving the model spec of the embedded starter model.
        presets: Named sets of vetted option values (`--preset NAME`). The one named "starter" is
            taken by itself for the embedded default: starter model on the task's own data.
        values: Option values that suit its problems whatever the model, such as how long answers
            may be; what an algorithm, a preset or a person says outranks them.
        reads_several: Whether `--dataset` may name several files, with commas between them.
        fit: `module:function` that proposes option values for a data set and a model
            (`rlvr.fitting`): called with a `Situation`, gives `Proposed` values by dotted key.
        data: The command that fetches its public data, or their address: told where `--dataset`
            names no file.
    """

    kind: ClassVar[str] = "task"
    reward: str = ""
    starter: str | None = field(default=None, validator=_TARGET)
    presets: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    values: Mapping[str, Any] = field(factory=dict)
    reads_several: bool = False
    data: str = ""
    fit: str | None = field(default=None, validator=_TARGET)


@frozen(kw_only=True)
class RewardSpec(PartSpec):
    """A verifier. `bounds` are the lowest and highest value it can give."""

    kind: ClassVar[str] = "reward"
    bounds: tuple[float, float] = (0.0, 1.0)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if len(self.bounds) != 2 or not self.bounds[0] <= self.bounds[1]:
            raise ValueError(f"bounds={self.bounds!r} are not (lowest, highest)")


@frozen(kw_only=True)
class CurriculumSpec(PartSpec):
    """A choice of the problems of each step, for any task."""

    kind: ClassVar[str] = "curriculum"


@frozen(kw_only=True)
class SamplerSpec(PartSpec):
    """A sampler: draws groups of trajectories."""

    kind: ClassVar[str] = "sampler"


@frozen(kw_only=True)
class AdvantageSpec(PartSpec):
    """
    An advantage: turns the rewards of a group into credit.

    Attributes:
        teachers: Options (dotted keys) that hold model specs of teachers, where the part asks any
            (`Needs.teachers`): a run then knows the teachers' own options too, and what the
            teachers were trained on.
    """

    kind: ClassVar[str] = "advantage"
    teachers: tuple[str, ...] = ()


@frozen(kw_only=True)
class LossSpec(PartSpec):
    """
    A loss: minimised by the backend. `teachers` as in `AdvantageSpec`.

    Attributes:
        around: Name of a loss that this one is built around: the run finds that one, builds it
            with the options of the same names in this one's namespace, and gives it as
            `context.inner`. "": none.
    """

    kind: ClassVar[str] = "loss"
    teachers: tuple[str, ...] = ()
    around: str = ""


@frozen(kw_only=True)
class BackendSpec(PartSpec):
    """
    A trainer, or a service that only samples.

    Attributes:
        models: Schemes of the model specs it takes (`gpt2` for `gpt2:PATH`). A scheme that one
            installed backend takes chooses that backend, unless `--backend` names another.
        sampler: Name of the sampler that `rlvr eval` uses with it; "": any, `group` by default.
        trains: False where it only samples: `rlvr run` then refuses it.
        starts: Options (dotted keys) that name further weights a run starts from, such as an
            adapter's directory: what those were trained on belongs to the model's lineage.
        default_model: Model spec it takes where nobody names one, instead of the task's starter;
            "": the starter.
        find_model: `module:function` that looks for a better one then, such as the only model of
            a server: it is called with nothing and gives a model spec, "" where it finds none.
        facts: `module:function` that tells a task's `fit` of a model without loading its weights:
            called with a `Situation`, gives `ModelFacts` (`rlvr.fitting`).
        fit: Like `TaskSpec.fit`, for what follows from model and machine alone.
    """

    kind: ClassVar[str] = "backend"
    models: tuple[str, ...] = ()
    sampler: str = ""
    trains: bool = True
    starts: tuple[str, ...] = ()
    default_model: str = ""
    find_model: str | None = field(default=None, validator=_TARGET)
    facts: str | None = field(default=None, validator=_TARGET)
    fit: str | None = field(default=None, validator=_TARGET)


@frozen(kw_only=True)
class TeacherSpec(PartSpec):
    """
    A frozen model that scores what the policy wrote.

    Attributes:
        models: Schemes of the model specs it takes (`gpt2` for `gpt2:PATH`): the scheme of a
            teacher's model spec chooses the part.
        adapts: It is no teacher of its own: it gives one with another tokenizer in the policy's
            tokens. Built with `context.inner`, the open teacher, `context.tokenizer`, the policy's,
            and `context.notes["differs"]`, what tells the two tokenizers apart. It has no options.
    """

    kind: ClassVar[str] = "teacher"
    models: tuple[str, ...] = ()
    adapts: bool = False


@frozen(kw_only=True)
class CheckpointerSpec(PartSpec):
    """A checkpointer: keeps the states of a run."""

    kind: ClassVar[str] = "checkpointer"


@frozen(kw_only=True)
class CallbackSpec(PartSpec):
    """An observer of a run, with options of its own: it is told and decides nothing."""

    kind: ClassVar[str] = "callback"


@frozen(kw_only=True)
class AlgorithmSpec(NamedRecord):
    """An algorithm is data: names of its parts and vetted option values."""

    kind: ClassVar[str] = "algorithm"
    sampler: str
    advantage: str
    loss: str
    values: Mapping[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class CheckResult(_Record):
    """Result of a prerequisite check; `fix` is the command that installs what is missing."""

    ok: bool
    found: str
    fix: str = ""


@frozen(kw_only=True)
class Check(NamedRecord):
    """A prerequisite; `target` gives a `CheckResult`. Required ones stop a run."""

    kind: ClassVar[str] = "check"
    target: str = field(validator=_TARGET)
    required: bool = True
    is_slow: bool = False


@frozen(kw_only=True)
class CommandSpec(NamedRecord):
    """
    A subcommand of the plugin, `rlvr PROVIDER NAME ...`; `target` takes argv, gives a code or None.

    Attributes:
        is_top: It can be called as `rlvr NAME ...` too, unless a command of rlvr's own or an
            installed plugin has that name.
        is_interactive: It waits for a person, so a long silence is no wait. A server calls
            `rlvr.heartbeat.hush` when it serves.
    """

    kind: ClassVar[str] = "command"
    target: str = field(validator=_TARGET)
    is_top: bool = False
    is_interactive: bool = False


@frozen(kw_only=True)
class Advice(_Record):
    """The message about an error, and its exit code."""

    message: str
    exit_code: ExitCode = ExitCode.BUG
