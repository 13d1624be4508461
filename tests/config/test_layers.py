"""Layers of option values: who wins, where it came from, what is refused."""

from __future__ import annotations

import asyncio
import functools

import attrs
import pytest
from attrs import frozen
from attrs.validators import ge, gt

from rlvr import ConfigError, PluginError, UnknownNameError, option
from rlvr.config.coerce import names_in
from rlvr.config.core import CORE_OPTIONS
from rlvr.config.layers import (
    Layer,
    environment_layer,
    file_layer,
    overrides_layer,
    resolve,
)


@frozen(kw_only=True)
class Options:
    """Options of a test."""

    lr: float = option(1e-3, "Learning rate", validator=gt(0))
    steps: int = option(10, "Steps", unit="steps", validator=ge(0))
    decay: str = option("none", "Decay", choices=("none", "linear"))
    fast: bool = option(False, "Skip checks")
    stop: tuple[str, ...] = option((), "Stop texts")
    limit: int | None = option(None, "Limit")


SPECS = {"t": Options}


def test_defaults_are_the_lowest_layer():
    """Without layers every option has its default and says so."""
    options = resolve(SPECS, [])

    assert options.record("t") == Options()
    assert set(options.origin.values()) == {"default"}
    assert list(options.values) == ["t.lr", "t.steps", "t.decay", "t.fast", "t.stop", "t.limit"]


def test_later_layers_win_and_are_named():
    """A value's origin is the name of the last layer that gave it."""
    options = resolve(
        SPECS, [Layer("low", {"t.steps": 1, "t.lr": 0.5}), Layer("high", {"t.lr": 2})]
    )

    assert (options.values["t.lr"], options.origin["t.lr"]) == (2.0, "high")
    assert (options.values["t.steps"], options.origin["t.steps"]) == (1, "low")
    assert options.record("t").lr == 2.0


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b", ["a", "b"]),
        (" a , b,", ["a", "b"]),
        ("", []),
        ("[" * 100_000, ["[" * 100_000]),
        ("a,x,b", ["a", "x", "b"]),
        ("a,x", ["a,x"]),
        ('["a,x", "b"]', ["a,x", "b"]),
        ("[1, 2]", ["1", "2"]),
        ("[]", []),
        ("[a],[b]", ["[a]", "[b]"]),
        ('[["a"]]', ['[["a"]]']),
        ("[1,2]", ["[1,2]"]),
    ],
)
def test_names_of_a_flag(text, names):
    """Split at commas, or a JSON list; a name that is known is never split."""
    assert names_in(text, {"a,x", "[1,2]"}) == names


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("t.lr=1e-4", 1e-4),
        ("t.lr=3", 3.0),
        ("t.steps=1_000", 1000),
        ("t.fast=yes", True),
        ("t.fast=0", False),
        ("t.stop=a,b", ("a", "b")),
        ('t.stop=["a,b", "\\n"]', ("a,b", "\n")),
        ("t.stop=", ()),
        ("t.limit=none", None),
        ("t.limit=7", 7),
        ("t.decay=linear", "linear"),
    ],
)
def test_texts_are_read_by_the_options_type(word, value):
    """The command line and the environment give texts; the declared type reads them."""
    found = resolve(SPECS, [overrides_layer([word])]).values[word.partition("=")[0]]

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "word",
    [
        "t.steps=1.5",
        "t.steps=many",
        "t.lr=nan",
        "t.lr=inf",
        "t.lr=",
        "t.fast=maybe",
        "t.limit=x",
        "t.stop=[1",
    ],
)
def test_texts_of_the_wrong_type_are_refused(word):
    """The error names the option, the value, where it came from and what was expected."""
    key, _, value = word.partition("=")

    with pytest.raises(ConfigError) as caught:
        resolve(SPECS, [overrides_layer([word])])

    message = str(caught.value)
    assert f"{key} cannot be {value!r} (from command line)" in message
    assert "expected:" in message


def test_a_wrong_value_is_refused_also_where_a_later_layer_wins():
    """A mistake in a file is told, not hidden by a flag."""
    with pytest.raises(ConfigError, match=r"run\.toml"):
        resolve(SPECS, [Layer("run.toml", {"t.steps": "x"}), Layer("flags", {"t.steps": 1})])


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"t.lr": -1.0}, "must be > 0"),
        ({"t.steps": -1}, "whole number (steps)"),
        ({"t.decay": "cosine"}, "one of none, linear"),
    ],
)
def test_values_that_the_option_refuses(values, part):
    """Validators speak through the same error, with unit and choices."""
    with pytest.raises(ConfigError) as caught:
        resolve(SPECS, [Layer("preset x", values)])

    assert part in str(caught.value)
    assert "(from preset x)" in str(caught.value)
    assert next(iter(values)) in str(caught.value)


def test_options_that_do_not_go_together():
    """Where each value alone is fine, the error shows what was given."""

    @frozen(kw_only=True)
    class Range:
        """A range."""

        low: int = option(0, "Low")
        high: int = option(9, "High")

        def __attrs_post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("low is above high")

    with pytest.raises(ConfigError, match="low is above high") as caught:
        resolve({"r": Range}, [Layer("flags", {"r.low": 5, "r.high": 3})])

    assert "r.low (flags), r.high (flags)" in str(caught.value)


def test_unknown_keys_suggest_the_nearest():
    """A misspelt option is an error with a suggestion and the layer's name."""
    with pytest.raises(UnknownNameError) as caught:
        resolve(SPECS, [Layer("run.toml", {"t.step": 1})])

    assert "no option 't.step' (from run.toml)" in str(caught.value)
    assert "did you mean 't.steps'?" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "instead"), [("run.plugin", "--plugin"), ("run.out", "--out"), ("parity.probe", "none")]
)
def test_an_option_that_is_gone_names_what_is_written_instead(key, instead):
    """From the command line and from the environment, and nothing that merely looks alike."""
    variable = "RLVR_" + key.upper().replace(".", "__")
    for layer in (
        overrides_layer([f"{key}=1"]),
        environment_layer({variable: "1"}, CORE_OPTIONS),
    ):
        with pytest.raises(UnknownNameError, match=f"any more.*\n.*\n.*{instead}") as caught:
            resolve(CORE_OPTIONS, [layer])
        assert "did you mean" not in str(caught.value)


def test_a_bare_key_suggests_its_namespace():
    """`lr=...` means `t.lr=...` to a person, so that is what is suggested."""
    with pytest.raises(UnknownNameError, match=r"did you mean 't\.lr'"):
        resolve(SPECS, [overrides_layer(["lr=1"])])


@pytest.mark.parametrize("word", ["t.lr", "=3", "--t.lr"])
def test_words_that_are_no_override(word):
    """What is not key=value is refused with an example."""
    with pytest.raises(ConfigError, match=r"train\.lr=1e-4"):
        overrides_layer([word])


def test_the_environment_sets_options():
    """RLVR_NAMESPACE__KEY is namespace.key, and the origin names the variable."""
    layer = environment_layer({"RLVR_T__LR": "0.5", "HOME": "/"}, SPECS)

    options = resolve(SPECS, [layer])

    assert options.values["t.lr"] == 0.5
    assert options.origin["t.lr"] == "environment RLVR_T__LR"


def test_control_variables_are_no_options():
    """Variables that steer plugins, data and caches pass by."""
    controls = ("PLUGINS", "DISABLE_PLUGINS", "STRICT_PLUGINS", "TRACE_PLUGINS", "DATA")
    others = ("CACHE_DIR", "REQUIRE_TOOLS", "DEBUG")
    environ = {f"RLVR_{name}": "1" for name in (*controls, *others)}

    assert environment_layer(environ, CORE_OPTIONS).values == {}


def test_an_unknown_variable_is_refused():
    """A misspelt variable is never ignored."""
    layer = environment_layer({"RLVR_TRAIN__LRR": "1"}, CORE_OPTIONS)

    with pytest.raises(UnknownNameError) as caught:
        resolve(CORE_OPTIONS, [layer])

    assert "environment RLVR_TRAIN__LRR" in str(caught.value)
    assert "did you mean 'train.lr'?" in str(caught.value)


def test_a_variable_with_one_underscore_too_few():
    """RLVR_TRAIN_LR looks like a control variable; it is told apart."""
    with pytest.raises(UnknownNameError, match="RLVR_TRAIN__LR"):
        environment_layer({"RLVR_TRAIN_LR": "1"}, CORE_OPTIONS)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.toml", '[t]\nlr = 1e-4\nstop = ["a"]\nfast = true\n'),
        ("run.toml", 't.lr = 1e-4\nt.stop = ["a"]\nt.fast = true\n'),
        ("run.yaml", "t:\n  lr: 1e-4\n  stop: [a]\n  fast: true\n"),
        ("run.yml", "t.lr: 1.0e-4\nt: {stop: [a], fast: true}\n"),
    ],
)
def test_files_of_both_kinds(tmp_path, name, text):
    """Nested tables and dotted keys mean the same; 1e-4 is a number in YAML too."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")

    options = resolve(SPECS, [file_layer(path)])

    assert options.record("t") == Options(lr=1e-4, stop=("a",), fast=True)
    assert options.origin["t.lr"] == str(path)


def test_a_path_in_a_file_is_at_home(tmp_path, monkeypatch):
    """No shell replaces its `~`, nor that of `key=~/value`."""
    monkeypatch.setenv("HOME", "/home/me")
    (tmp_path / "run.toml").write_text('[run]\ndataset = "~/d.jsonl"\n', encoding="utf-8")
    layers = [
        file_layer(tmp_path / "run.toml"),
        overrides_layer(["verify.store=~/v", "run.algo=~"]),
    ]

    values = resolve(CORE_OPTIONS, layers).values

    assert (values["run.dataset"], values["verify.store"]) == ("/home/me/d.jsonl", "/home/me/v")
    assert values["run.algo"] == "~"


@pytest.mark.parametrize(
    "line",
    [
        "lr = 1" + "0" * 400,
        "steps = 0x" + "f" * 5000,
        'steps = "3"',
        "steps = 3.0",
        "steps = true",
        "decay = 1",
        "stop = 'a'",
    ],
)
def test_files_know_types(tmp_path, line):
    """In a file a text is no number, a fraction no whole number, a flag no number."""
    path = tmp_path / "run.toml"
    path.write_text(f"[t]\n{line}\n", encoding="utf-8")

    with pytest.raises(ConfigError, match=r"t\.(lr|steps|decay|stop) cannot be"):
        resolve(SPECS, [file_layer(path)])


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("run.toml", "[t\n", "line 1"),
        ("run.yaml", "t:\n  lr: [1\n", "line "),
        ("run.yaml", "- 1\n", "not a table"),
        ("run.ini", "", "use a .toml"),
        ("run.toml", "[t]\nsteps = 1" + "0" * 5000, "(line 2: steps = 1000"),
        ("run.yaml", "t:\n  steps: 1" + "0" * 5000, "(line 2:   steps: 1000"),
        ("run.yaml", "t:\n  lr: 1" + "0" * 200 + ":1" * 200 + ".5", "too large"),
        ("run.toml", f"t = {'[' * 5000}{']' * 5000}", "nested too deep"),
        ("run.yaml", f"t: {'[' * 5000}{']' * 5000}", "nested too deep"),
        ("run.toml", f"{'.'.join('t' * 5000)} = 1", "nested too deep"),
        ("run.yaml", "t: &t {t: *t}", "nested too deep"),
        ("run.yaml", "t:\n  lr: 2020-99-99", "month must be"),
        ("run.yaml", "t:\n  lr: !!int ''", "IndexError"),
        ("run.yaml", "t:\n  lr: !!bool x", "KeyError"),
        ("run.yaml", "t:\n  lr: !!timestamp x", "AttributeError"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, name, text, part):
    """A file that does not parse is refused with its name and, where it has one, the line."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError) as caught:
        file_layer(path)

    assert part in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file(tmp_path):
    """A file that is not there is an unknown name, exit 2."""
    with pytest.raises(UnknownNameError, match="no such file"):
        file_layer(tmp_path / "run.toml")


def test_an_empty_yaml_file_changes_nothing(tmp_path):
    """Empty means no options, as in TOML."""
    path = tmp_path / "run.yaml"
    path.write_text("", encoding="utf-8")

    assert file_layer(path).values == {}


def test_an_unknown_namespace_of_a_record():
    """Asking for options that nothing declared names those there are."""
    with pytest.raises(UnknownNameError, match="there are: t"):
        resolve(SPECS, []).record("u")


def test_a_class_that_declares_no_defaults_is_the_plugins_mistake():
    """Every option has a default; a class without is refused by name, exit 3."""

    @frozen(kw_only=True)
    class Bad:
        """No default."""

        size: int

    with pytest.raises(PluginError, match="Bad"):
        resolve({"bad": Bad}, [])


def test_an_annotation_that_cannot_be_read_is_the_plugins_mistake():
    """As of an import under TYPE_CHECKING: the options are named, and what their module lacks."""

    @frozen(kw_only=True)
    class Options:
        level: Absent = option(3, "Level")  # noqa: F821, RUF009  # the planted fault

    with pytest.raises(PluginError, match=r"options of 'mine' .*Options[\s\S]*'Absent' is not"):
        resolve({"mine": Options}, [])


RAISED = [SystemExit(0), KeyError("w"), FileNotFoundError(2, "none", "/data"), GeneratorExit()]
RAISED += [asyncio.CancelledError(), type("Mute", (Exception,), {"__str__": lambda self: 1 / 0})()]


def raising(where, error, when):
    """A class of options whose author's code raises there, for the value 2 or always."""

    def code(*given):
        if given[-1:] == (2.0,) or when == "always":
            raise error
        return 1.0

    def check(self):
        return code(self.w)

    fields = {
        "validator": {"default": 1.0, "validator": code},
        "converter": {"default": 1.0, "converter": code},
        "factory": {"factory": code},
        "post": {"default": 1.0},
    }
    names = {"__annotations__": {"w": float}, "w": attrs.field(**fields[where])}
    if where == "post":
        names["__attrs_post_init__"] = check
    return frozen(type("Mine", (), names))


@pytest.mark.parametrize("error", RAISED, ids=[type(error).__name__ for error in RAISED])
@pytest.mark.parametrize("where", ["validator", "converter", "factory", "post"])
def test_what_the_code_of_an_options_author_raises_names_the_options(where, error):
    """Neither a silent end nor a bug of ours: exit 3, at the default and of a value."""
    said = rf"options of 'mine' .*Mine\)[\s\S]*it raised {type(error).__name__}"
    with pytest.raises(PluginError, match=said):
        resolve({"mine": raising(where, error, "always")}, [])
    if where == "factory":
        return

    with pytest.raises(PluginError, match=said) as caught:
        resolve({"mine": raising(where, error, "at 2")}, [Layer("flags", {"mine.w": 2})])

    assert "mine.w=2.0 (from flags)" in str(caught.value)
    assert caught.value.__cause__ is error


def test_ctrl_c_in_a_validator_stays_ctrl_c():
    """It is nobody's fault."""
    with pytest.raises(KeyboardInterrupt):
        resolve({"mine": raising("validator", KeyboardInterrupt(), "always")}, [])


def test_a_refusal_whose_text_cannot_be_made_refuses_the_value():
    """The option is named all the same."""
    mute = type("Mute", (ValueError,), {"__str__": lambda self: 1 / 0})()

    with pytest.raises(ConfigError, match=r"mine\.w cannot be 2\.0 [\s\S]*text raised ZeroDiv"):
        resolve({"mine": raising("validator", mute, "at 2")}, [Layer("flags", {"mine.w": 2})])


def test_options_that_are_no_class_are_the_plugins_mistake():
    """Such as an instance."""
    with pytest.raises(PluginError, match="no attrs class"):
        resolve({"mine": Options()}, [])


NESTED = functools.reduce(lambda inner, _: [inner], range(3000), 1)


TOO_BIG = [
    ("t.lr", 10**400), ("t.lr", -(10**400)), ("t.lr", 10**5000), ("t.lr", "1" + "0" * 400),
    ("t.steps", 10**400), ("t.steps", 10**5000), ("t.steps", "1" + "0" * 400),
    ("t.limit", 2**64), ("t.limit", -(2**63) - 1), ("t.limit", "9" * 5000),
    ("t.decay", 10**5000), ("t.fast", 10**5000), ("t.stop", 10**5000), ("t.stop", [10**5000]),
    ("t.steps", NESTED), ("t.stop", NESTED), ("t.stop", "[" * 100_000),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), TOO_BIG, ids=[str(n) for n, _ in enumerate(TOO_BIG)])
def test_a_value_that_is_too_big_is_refused(key, value):
    """Wherever it comes from: the option and the place are named."""
    with pytest.raises(ConfigError) as caught:
        resolve(SPECS, [Layer("the call", {key: value})])

    assert str(caught.value).startswith(f"{key} cannot be ")
    assert "(from the call)\n  expected: " in str(caught.value)
    assert len(str(caught.value)) < 800


def test_whole_numbers_have_64_bits():
    """Those at the ends are taken; a number may be larger."""
    ends = {"t.limit": -(2**63), "t.steps": 2**63 - 1, "t.lr": 10**300}

    assert resolve(SPECS, [Layer("flags", ends)]).values["t.lr"] == 1e300


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (None, "w has no annotation"),
        ("attrs.Flaot", "Flaot"),
        ("tuple[", "must be an expression"),
        (dict, r"mine\.w was given \(from flags\)\n.*cannot have the type dict"),
        (tuple, "cannot have the type tuple"),
        (int | str | None, "cannot have the type"),
    ],
)
def test_a_type_that_no_option_has_is_the_plugins_mistake(annotation, said):
    """Told where it is known, by the option's name."""
    names = {"__annotations__": {"w": annotation}, "__module__": __name__} if annotation else {}
    mine = frozen(type("Mine", (), {**names, "w": option(1.0, "Weight")}))

    with pytest.raises(PluginError, match=said):
        resolve({"mine": mine}, [Layer("flags", {"mine.w": "2"})])


def test_the_core_has_few_options():
    """Small configuration: all else is a plugin's."""
    assert len(resolve(CORE_OPTIONS, []).values) <= 40
