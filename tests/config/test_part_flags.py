"""Options of the chosen task and reward as flags."""

from __future__ import annotations

import argparse

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from rlvr import ConfigError, UnknownNameError, option
from rlvr.cli.parser import CommandParser
from rlvr.config.part_flags import PartFlags, flags_of, part_layer, split_flags


@frozen(kw_only=True)
class TaskConfig:
    """A task's options."""

    sandbox: str = option("auto", "Where", choices=("auto", "docker"))
    time_limit_s: float = option(1.0, "How long", unit="s")
    strict: bool = option(False, "Whether")
    shared: int = option(1, "Of both")


@frozen(kw_only=True)
class RewardConfig:
    """A reward's options."""

    shared: int = option(1, "Of both")


@frozen(kw_only=True)
class AdvantageConfig:
    """Options of a part of the algorithm."""

    teacher: str = option("", "Which")
    strict: bool = option(False, "Whether")


SPECS = [{"task": TaskConfig}, {"advantage": AdvantageConfig}]
BOTH = [{"task": TaskConfig, "judge": RewardConfig}]


def parse(*words: str) -> argparse.Namespace:
    parser = CommandParser(prog="rlvr thing")
    parser.add_argument("--plugin")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("overrides", nargs="*")
    return parser.parse_args(list(words))


def values(*words: str) -> dict[str, object]:
    args = parse(*words)
    given = dict(word.split("=", 1) for word in args.overrides)
    return dict(part_layer(args.part_flags, SPECS, given).values)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--sandbox", "docker"], {"task.sandbox": "docker"}),
        (["--sandbox=docker"], {"task.sandbox": "docker"}),
        (["--strict"], {"task.strict": "true"}),
        (["--strict", "--steps", "3"], {"task.strict": "true"}),
        (["--strict", "train.lr=1"], {"task.strict": "true"}),
        (["--strict", "false"], {"task.strict": "false"}),
        (["--strict=no"], {"task.strict": "no"}),
        (["--time-limit-s", "-3"], {"task.time_limit_s": "-3"}),
        (["--time_limit_s", "2"], {"task.time_limit_s": "2"}),
        (["--sandbox", "auto", "--sandbox", "docker"], {"task.sandbox": "docker"}),
        (["--plugin", "x", "--json", "--steps", "3"], {}),
        (["--teacher", "hf:x"], {"advantage.teacher": "hf:x"}),
        (["--teacher=hf:x", "--strict"], {"advantage.teacher": "hf:x", "task.strict": "true"}),
    ],
)
def test_what_a_flag_means(words: list[str], expected: dict[str, object]) -> None:
    """`--NAME VALUE`, `--NAME=VALUE`, `--NAME` alone for true; the task's come first."""
    assert values(*words) == expected


def test_the_commands_own_flags_stay_its_own() -> None:
    """Words and flags may stand in any order; a flag of the command wins."""
    args = parse("a.b=1", "--strict", "--steps", "3", "--sandbox", "docker", "c.d=2", "--json")

    assert (args.steps, args.json, args.overrides) == (3, True, ["a.b=1", "c.d=2"])
    assert args.part_flags.given == (("--strict", None), ("--sandbox", "docker"))


def test_where_a_value_came_from() -> None:
    """The layer is the command line's, like that of key=value words."""
    flags = PartFlags(given=(("--strict", None),))

    assert part_layer(flags, SPECS, {}).place("task.strict") == "command line"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--sandbux", "docker"], "did you mean '--sandbox'?"),
        (["--step", "3"], "did you mean '--steps'?"),
        (["--strikt"], "did you mean '--strict'?"),
    ],
)
def test_an_unknown_flag_suggests_the_nearest(words: list[str], hint: str) -> None:
    """Among the command's own flags and the parts'."""
    with pytest.raises(UnknownNameError) as caught:
        values(*words)

    assert hint in str(caught.value)


def test_a_dotted_flag_is_refused_at_once() -> None:
    """Options with their namespace are written without dashes."""
    with pytest.raises(UnknownNameError, match=r"without dashes: task\.strict=true"):
        parse("--task.strict=true")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sandbox"], "without a value"),
        (["--sandbox", "--strict"], "without a value"),
        (["--strict", "docker"], "neither"),
        (["--sandbox", "docker", "task.sandbox=auto"], "are the same option"),
    ],
)
def test_a_flag_that_cannot_be_meant_is_refused(words: list[str], message: str) -> None:
    """Nothing is guessed, and nothing is accepted and ignored."""
    with pytest.raises(ConfigError, match=message):
        values(*words)


def test_the_same_value_twice_is_no_contradiction() -> None:
    """A flag and its key=value may agree."""
    assert values("--sandbox", "docker", "task.sandbox=docker") == {"task.sandbox": "docker"}


def test_a_flag_that_two_parts_of_a_tier_have_is_ambiguous() -> None:
    """Both keys are named; the others go on working."""
    with pytest.raises(ConfigError, match=r"task\.shared or judge\.shared"):
        part_layer(PartFlags(given=(("--shared", "2"),)), BOTH, {})
    assert part_layer(PartFlags(given=(("--strict", None),)), BOTH, {}).values


def test_help_shows_flags_that_work() -> None:
    """Not those of the command itself, and not those of two parts."""
    keys = ["task.sandbox", "task.steps", "task.shared", "judge.shared"]

    assert flags_of(keys, ["--steps"]) == {"task.sandbox": "--sandbox"}


_OWN = st.sampled_from([["--json"], ["--steps", "3"], ["--plugin=x"], ["a.b=1"], ["c.d=--x"]])
_PART = st.sampled_from([["--strict"], ["--sandbox=docker"], ["--x-y", "word"], ["--n", "-1"]])


@given(st.lists(st.tuples(st.booleans(), _OWN, _PART), max_size=6))
def test_no_word_is_lost_or_read_twice(mixed: list[tuple[bool, list[str], list[str]]]) -> None:
    """Whatever the order, the command's words stay as they are, and the flags are the others."""
    chosen = [(is_own, own if is_own else part) for is_own, own, part in mixed]
    parser = CommandParser(prog="rlvr thing")
    parser.add_argument("--plugin")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("overrides", nargs="*")

    kept, flags = split_flags([word for _, words in chosen for word in words], parser)

    assert kept == [word for is_own, words in chosen if is_own for word in words]
    assert len(flags.given) == sum(not is_own for is_own, _ in chosen)
