"""Option values that a task and a backend propose: their place among the layers, and the border."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr import (
    BackendSpec,
    ConfigError,
    ModelFacts,
    PluginError,
    Proposed,
    RewardSpec,
    Situation,
    TaskSpec,
    check_known,
    parse_variables,
    variables_of,
)
from rlvr.assembly.configured import Chosen
from rlvr.assembly.fitted_values import fitted_layers
from rlvr.config.core import CORE_OPTIONS
from rlvr.config.layers import Layer, resolve

FACTS = ModelFacts(context_length=9, count=len, prompt_tokens=len)
Fit = Callable[[Situation], Any]


@pytest.fixture
def propose(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> Callable[..., tuple[dict[str, Any], dict[str, str]]]:
    """Resolved values and origins with what a task (and a backend) propose."""

    def resolved(
        fit: Fit, given: Mapping[str, Any], backend_fit: Fit | None = None, facts: Fit | None = None
    ) -> tuple[dict[str, Any], dict[str, str]]:
        module = ModuleType("rlvr_fitting_test")
        module.fit, module.own = fit, backend_fit  # type: ignore[attr-defined]
        module.facts = facts or (lambda _: FACTS)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "rlvr_fitting_test", module)
        (tmp_path / "d.jsonl").touch()
        chosen = Chosen(
            task=TaskSpec(name="t", target="m:t", fit="rlvr_fitting_test:fit", provider="p"),
            reward=RewardSpec(name="t", target="m:t"),
            backend=BackendSpec(
                name="b",
                target="m:b",
                provider="q",
                facts="rlvr_fitting_test:facts",
                fit="rlvr_fitting_test:own" if backend_fit else None,
            ),
        )
        said = {"run.dataset": str(tmp_path / "d.jsonl"), "run.model": "hf:x", **given}
        layers = [Layer("command line", said)]
        options = resolve(CORE_OPTIONS, layers)
        fitted = fitted_layers(chosen, options, layers, trains=True)
        options = resolve(CORE_OPTIONS, [*fitted, *layers])
        return dict(options.values), dict(options.origin)

    return resolved


def test_a_proposal_is_taken_with_its_reason(propose: Any) -> None:
    """The origin names the data set and the reason; the task was told what is known."""
    seen: list[Situation] = []

    def fit(situation: Situation) -> dict[str, Proposed]:
        seen.append(situation)
        return {"sampler.max_tokens": Proposed(7, "seven fit")}

    values, origin = propose(fit, {"train.problems": 3})

    assert values["sampler.max_tokens"] == 7
    assert origin["sampler.max_tokens"] == "data set d.jsonl: seven fit"
    (situation,) = seen
    assert situation.facts is FACTS
    assert situation.trains
    assert {"train.problems", "run.model"} <= situation.said
    assert situation.options("train")["problems"] == 3


@given(typed=st.integers(1, 99), proposed=st.integers(1, 99))
def test_what_a_person_says_outranks_it(typed: int, proposed: int) -> None:
    """Whatever both say, in any layer that a person gave."""
    layer = Layer("data set d", {"sampler.max_tokens": proposed}, is_typed=True)
    options = resolve(
        CORE_OPTIONS, [layer, Layer("command line", {"sampler.max_tokens": str(typed)})]
    )

    assert options.values["sampler.max_tokens"] == typed
    assert options.origin["sampler.max_tokens"] == "command line"


def test_the_task_sees_what_the_backend_proposed(propose: Any) -> None:
    """Unless a person said otherwise."""

    def own(_: Situation) -> dict[str, Proposed]:
        return {"train.lr": Proposed(0.5, "x"), "train.problems": Proposed(5, "y")}

    def fit(situation: Situation) -> dict[str, Proposed]:
        told = situation.options("train")
        assert (told["lr"], told["problems"]) == (0.5, 2)
        return {}

    values, origin = propose(fit, {"train.problems": 2}, own)

    assert values["train.lr"] == 0.5
    assert origin["train.lr"] == "model hf:x: x"
    assert values["train.problems"] == 2


@pytest.mark.parametrize("gives", [None, 3, {"train.lr": 0.1}, [("train.lr", 0.1)], "x"])
def test_something_else_than_proposals_names_the_plugin(propose: Any, gives: Any) -> None:
    """Plugin, function, what came and what was promised."""
    with pytest.raises(PluginError, match=r"'p', task 't' .*rlvr_fitting_test:fit[\s\S]*Proposed"):
        propose(lambda _: gives, {})


def test_an_error_of_the_function_names_the_plugin(propose: Any) -> None:
    """No traceback of ours; an error that a person can mend is passed on as it is."""

    def broken(_: Situation) -> Any:
        raise ZeroDivisionError("oops")

    def refusing(_: Situation) -> Any:
        raise ConfigError("take another model")

    with pytest.raises(PluginError, match="ZeroDivisionError"):
        propose(broken, {})
    with pytest.raises(ConfigError, match="take another model"):
        propose(refusing, {})


def test_a_model_that_cannot_be_read_is_unknown(propose: Any) -> None:
    """Opening it says what is wrong; a task proposes what it can without it."""

    def facts(_: Situation) -> Any:
        raise OSError("no such file")

    def fit(situation: Situation) -> dict[str, Proposed]:
        assert situation.facts is None
        return {}

    propose(fit, {}, None, facts)


def test_a_proposal_of_an_option_that_is_not_there_has_no_effect(propose: Any) -> None:
    """Such as one of a run, where an evaluation is configured."""
    values, _ = propose(lambda _: {"elsewhere.key": Proposed(1, "x")}, {})

    assert "elsewhere.key" not in values


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("{% if enable_thinking %}a{% endif %}{{ messages }}{{ bos_token }}", {"enable_thinking"}),
        ("{% set x = y %}{{ x }}{{ tools }}", {"y"}),
        ("{% generation %}{{ z }}{%- endgeneration -%}", {"z"}),
        ({"default": "{{ a }}", "tool_use": "{{ b }}"}, {"a", "b"}),
        ("{{ strftime_now('%d') }}{{ date_string }}", {"date_string"}),
        ("{% for m in messages %}{% if m.x %}{% continue %}{% endif %}{% endfor %}", set()),
        ("{% broken", set()),
        (None, set()),
    ],
)
def test_variables_of_a_template(template: Any, names: set[str]) -> None:
    """Those that somebody has to set, and none that rendering sets."""
    assert variables_of(template) == names


def test_words_become_variables() -> None:
    """Values are JSON where they can be; what no template may get is refused."""
    assert parse_variables(("a=false", "b=low", "c = 3", "d=True", "e=x=y"), "o") == {
        "a": False, "b": "low", "c": 3, "d": True, "e": "x=y",
    }  # fmt: skip
    for word in ("a", "=1", "messages=1", "tokenize=true", "1x=2", ""):
        with pytest.raises(ConfigError):
            parse_variables((word,), "o")
    with pytest.raises(ConfigError, match="reads enable_thinking"):
        check_known({"thinking": 1}, "{{ enable_thinking }}", "m", "o")
    with pytest.raises(ConfigError, match="no chat template"):
        check_known({"thinking": 1}, None, "m", "o")
