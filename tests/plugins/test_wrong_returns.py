"""What a hook, or a function that a record names, may return by mistake: named, never a crash."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import attrs
import pytest

import rlvr.specs as specs
from rlvr import Advice, Check, CheckResult, PartError, PrerequisiteError, hookimpl
from rlvr.assembly.prerequisites import check_prerequisites, run_check
from rlvr.assembly.teachers import model_of
from rlvr.assembly.vetted_values import default_model
from rlvr.cli.plugin_commands import _call
from rlvr.cli.run import _of_plugins
from rlvr.plugins.host import PluginHost
from rlvr.plugins.offers import OFFERS, checked
from rlvr.specs import AlgorithmSpec, BackendSpec, CommandSpec, PartSpec, RewardSpec, TaskSpec


class Unprintable:
    """Cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def leaves() -> None:
    raise SystemExit(3)


async def later() -> CheckResult:
    return CheckResult(ok=True, found="")


RETURNS: dict[str, Any] = {
    "nothing": lambda: None,
    "truth": lambda: True,
    "text": lambda: "all is well",
    "list": lambda: [CheckResult(ok=True, found="")],
    "dict": lambda: {"ok": True, "found": "12"},
    "class": lambda: CheckResult,
    "unprintable": Unprintable,
    "late": later,
    "leaves": leaves,
    "number": lambda: CheckResult(ok=1, found="12"),  # type: ignore[arg-type]
    "unfound": lambda: CheckResult(ok=True, found=None),  # type: ignore[arg-type]
    "unfixed": lambda: CheckResult(ok=False, found="x", fix=["apt"]),  # type: ignore[arg-type]
}


def target(monkeypatch: pytest.MonkeyPatch, function: Any) -> str:
    """A target that names this function."""
    monkeypatch.setitem(globals(), "_target", function)
    return f"{__name__}:_target"


@pytest.fixture
def host() -> PluginHost:
    return PluginHost.load({"RLVR_PLUGINS": ""})


@pytest.mark.parametrize("name", RETURNS)
def test_a_check_that_gives_no_result_has_failed(
    name: str, host: PluginHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For `rlvr doctor` and for the start of a run, which ends with exit 4 in words."""
    check = Check(name="gpu", target=target(monkeypatch, RETURNS[name]), provider="tools")

    found = run_check(check)

    assert not found.ok
    assert found.found.startswith("the check failed: ")
    monkeypatch.setattr(host, "checks", lambda: [check])
    with pytest.raises(PrerequisiteError, match="plugin tools cannot run here") as error:
        check_prerequisites(host, "tools")
    assert "missing: gpu: the check failed: " in str(error.value)


def test_a_check_result_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above is about something."""
    good = CheckResult(ok=True, found="12")
    assert run_check(Check(name="gpu", target=target(monkeypatch, lambda: good))) == good


def test_a_check_that_explains_itself_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own words, not those of the error that it explains."""

    def explains() -> CheckResult:
        raise PrerequisiteError("Docker does not run here") from OSError("no such socket")

    found = run_check(Check(name="gpu", target=target(monkeypatch, explains)))

    assert found.found == "the check failed: PrerequisiteError: Docker does not run here"


NOTHING_LIKE_IT: dict[str, Any] = {
    "nothing": None,
    "text": "toy",
    "number": 3,
    "coroutine": later,
    "strings": ["toy"],
    "dict": {"toy": 1},
    "class": [TaskSpec],
    "one record": Check(name="x", target="a:b"),
    "another record": [CheckResult(ok=True, found="")],
    "nested": [[Check(name="x", target="a:b")]],
}


@pytest.mark.parametrize("hook", OFFERS)
@pytest.mark.parametrize("name", NOTHING_LIKE_IT)
def test_an_offer_of_something_else_is_refused(hook: str, name: str) -> None:
    """By each hook that yields records; the message names the hook."""
    came = NOTHING_LIKE_IT[name]

    with pytest.raises(TypeError, match=f"{hook} (gave|yielded) "):
        checked(hook, came() if callable(came) else came, "p")


RECORDS = [r for r in vars(specs).values() if isinstance(r, type) and attrs.has(r)]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_each_field_of_a_record_has_its_type(record: type) -> None:
    """A wrong value is refused when the plugin makes the record, by field and value."""
    needed: dict[str, Any] = {"name": "x", "target": "a:b", "sampler": "a", "advantage": "b"}
    needed |= {"loss": "c", "ok": True, "found": "f", "message": "m"}
    names = {field.name for field in attrs.fields(record)}
    given = {name: value for name, value in needed.items() if name in names}
    record(**given)
    for name in names:
        with pytest.raises(TypeError, match=rf"\b{name} = .*object"):
            record(**{**given, name: object()})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "none"}, "name = 'none' is no name: write lower-case words, not none"),
        ({"name": "My sums"}, "name = 'My sums' is no name"),
        ({"target": "sums"}, "target = 'sums' names no object: write 'MODULE:OBJECT'"),
        ({"bounds": (1.0, 0.0)}, r"bounds=\(1.0, 0.0\) are not \(lowest, highest\)"),
        ({"bounds": (0.0,)}, r"bounds=\(0.0,\) are not"),
        ({"bounds": (0.0, float("nan"))}, "nan"),
    ],
)
def test_what_a_reward_cannot_be_is_said_in_words(wrong: dict[str, Any], said: str) -> None:
    """A name that nobody can ask for, a target that names nothing, bounds that hold nothing."""
    with pytest.raises(ValueError, match=said):
        RewardSpec(**{"name": "sums", "target": "a:b", **wrong})
    with pytest.raises(TypeError, match=r"target = <class .* names no object"):
        RewardSpec(name="sums", target=RewardSpec)  # type: ignore[arg-type]


@attrs.frozen(kw_only=True)
class SlowCheck(Check):
    minutes: int = 5


def test_a_plugin_may_add_fields_to_a_record() -> None:
    """Of which rlvr knows nothing; those of the record are held to their types as before."""
    assert SlowCheck(name="gpu", target="a:b").minutes == 5
    with pytest.raises(TypeError, match="required"):
        SlowCheck(name="gpu", target="a:b", required="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("record", "field", "value"),
    [
        (BackendSpec, "models", "gpt2"),  # each letter would be a scheme
        (BackendSpec, "models", [1]),
        (BackendSpec, "starts", {"lora.from"}),
        (specs.RewardSpec, "bounds", ("0", "1")),
        (TaskSpec, "presets", ["fast"]),
        (AlgorithmSpec, "values", "train.lr=1"),
        (Check, "required", "yes"),
        (CommandSpec, "is_top", 1),
        (PartSpec, "namespace", None),
    ],
)
def test_texts_are_no_lists_of_texts(record: Any, field: str, value: Any) -> None:
    """What could be read as something else is refused."""
    parts = {"sampler": "a", "advantage": "b", "loss": "c"} if record is AlgorithmSpec else {}
    parts |= {} if record is AlgorithmSpec else {"target": "a:b"}

    with pytest.raises(TypeError, match=rf"{record.__name__}\.{field} = "):
        record(name="x", **parts, **{field: value})


@pytest.mark.parametrize("came", ["done", [0], 1.5, object(), later])
def test_a_command_gives_a_code(came: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is none is refused by plugin, command and function."""
    function = came if asyncio.iscoroutinefunction(came) else (lambda: came)
    command = CommandSpec(name="play", target=target(monkeypatch, lambda argv: function()))
    command = attrs.evolve(command, provider="tools")

    with pytest.raises(PartError, match=r"plugin 'tools', command 'play'[\s\S]*exit code"):
        _call(command, [])


@pytest.mark.parametrize(("came", "code"), [(None, 0), (0, 0), (4, 4), (True, 1)])
def test_a_command_may_give_nothing(came: Any, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is 0, as for every program."""
    command = CommandSpec(name="play", target=target(monkeypatch, lambda argv: came))

    assert _call(command, []) == code


@pytest.mark.parametrize("came", [None, Path("model"), 3, later])
def test_a_starter_is_a_model_spec(came: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`None` was taken for a model called None."""
    function = came if callable(came) else (lambda: came)
    task = TaskSpec(name="sums", target="a:b", starter=target(monkeypatch, function))
    task = attrs.evolve(task, provider="adder")

    with pytest.raises(PartError, match=r"plugin 'adder', task 'sums'[\s\S]*a model spec"):
        model_of("starter", task)


@pytest.mark.parametrize("came", [None, 3, ["gpt2:x"]])
def test_a_model_that_is_found_is_a_text(
    came: Any, host: PluginHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the default stands."""
    spec = BackendSpec(name="far", target="a:b", find_model=target(monkeypatch, lambda: came))
    spec = attrs.evolve(spec, default_model="gpt2:own")
    monkeypatch.setattr(host, "backends", lambda: [spec])

    assert default_model("far", host) == "gpt2:own"


@pytest.mark.parametrize("came", ["restart it", 3, Advice, leaves, ["a"], Unprintable()])
def test_what_is_no_advice_is_passed_over(came: Any, host: PluginHost) -> None:
    """The next one is asked, and the error says who answered wrongly."""

    class Odd:
        @hookimpl
        def rlvr_explain_error(self, error: BaseException) -> Any:
            return came() if came is leaves else came

    class Knows:
        @hookimpl(trylast=True)
        def rlvr_explain_error(self, error: BaseException) -> Any:
            return Advice(message="lower it")

    host.register_observer(Odd(), "odd")
    host.register_observer(Knows(), "knows")
    error = MemoryError()

    assert host.explain_error(error) == Advice(message="lower it")
    assert "plugin 'odd'" in error.__notes__[0]


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, BaseException])
def test_an_observer_that_leaves_stops_nobody(kind: type[BaseException], host: PluginHost) -> None:
    """`sys.exit` in an announcement is that observer's failure; so is all but Ctrl-C."""

    class Leaves:
        @hookimpl
        def rlvr_step_finished(self) -> None:
            raise kind

    host.register_observer(Leaves(), "leaves")
    failed = host.announce("rlvr_step_finished", run=None, step=1, metrics={})

    assert [(name, type(error)) for name, error in failed] == [("leaves", kind)]


def test_entries_of_a_summary_that_are_no_json_are_left_out(
    host: PluginHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run is done: its summary is printed without them."""
    circle: dict[str, Any] = {}
    circle["again"] = circle

    class Adds:
        @hookimpl
        def rlvr_run_summarised(self, directory: Path, entries: dict[Any, Any]) -> None:
            entries.update({"good": 1, "path": directory, "circle": circle, 3: "three"})
            entries.update({"keys": {(1, 2): 3}})

    host.register_observer(Adds(), "adds")
    found = _of_plugins(host, tmp_path)

    assert set(found) == {"good", "path"}
    assert json.dumps(found, default=str)
    assert "entry_left_out" in "".join(capsys.readouterr())
