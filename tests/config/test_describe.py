"""Options described for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.config.coerce import coerce
from rlvr.config.core import CORE_OPTIONS
from rlvr.config.describe import as_text, describe, reference_markdown
from rlvr.config.layers import overrides_layer, resolve


def test_rows_carry_value_and_origin():
    """With resolved options a row says the value and where it came from."""
    options = resolve(CORE_OPTIONS, [overrides_layer(["train.lr=0.5"])])

    row = next(r for r in describe(CORE_OPTIONS, options) if r.key == "train.lr")

    assert (row.value, row.default, row.origin) == (0.5, 1e-5, "command line")
    assert row.type == "number"


def test_every_core_option_explains_itself():
    """No option without a help line, in one line."""
    for row in describe(CORE_OPTIONS):
        assert row.help, row.key
        assert "\n" not in row.help


def test_the_reference_has_a_row_for_each_option():
    """Nothing is left out of the generated page, and tables are well formed."""
    text = reference_markdown(CORE_OPTIONS)

    for row in describe(CORE_OPTIONS):
        (line,) = [line for line in text.splitlines() if line.startswith(f"| `{row.key}` |")]
        assert line.replace("\\|", "").count("|") == 5
        assert row.help in line
        assert all(as_text(choice) in line.split("|")[3] for choice in row.choices)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (None, "none"),
        (("a", "b"), "a,b"),
        (("a", "b,"), '["a", "b,"]'),
        ((), ""),
    ],
)
def test_values_are_written_as_they_are_read(value, text):
    """What is shown can be given back on a command line."""
    assert as_text(value) == text


@given(st.lists(st.text()).map(tuple))
def test_every_list_survives_being_shown(value):
    """Any list of texts, written by `as_text` and read from the command line, is the same list."""
    assert coerce(as_text(value), tuple[str, ...]) == value


@given(
    st.one_of(
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
    )
)
def test_every_number_survives_being_shown(value):
    """The same for numbers and flags."""
    assert coerce(as_text(value), type(value)) == value
