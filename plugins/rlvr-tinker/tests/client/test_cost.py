"""What a run has cost: tokens times the prices that a person gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlvr.errors import ConfigError, UnknownNameError
from rlvr_tinker.cost import bill, main, read_prices, read_usage
from rlvr_tinker.usage import Usage


def test_the_bill_by_hand() -> None:
    """2 M prefilled at 0.1, 1 M sampled at 0.4, 3 M trained at 1, 0.5 M scored as prefill."""
    usage = Usage(prefilled=2_000_000, sampled=1_000_000, trained=3_000_000, scored=500_000)

    lines = bill(usage, {"prefill": 0.1, "sample": 0.4, "train": 1.0})

    assert [line.cost for line in lines] == pytest.approx([0.2, 0.4, 3.0, 0.05])


def test_counts_are_kept_beside_the_run(tmp_path: Path) -> None:
    """And go on after a resume."""
    Usage(model="m", prefilled=3, sampled=4, trained=5, scored=6, states=7).write(tmp_path)
    again = read_usage(tmp_path)

    assert again == Usage(model="m", prefilled=3, sampled=4, trained=5, scored=6, states=7)
    assert [path.name for path in tmp_path.iterdir()] == ["tinker-usage.json"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the total; as JSON too."""
    Usage(model="m", sampled=1_000_000).write(tmp_path)
    prices = tmp_path / "prices.json"
    prices.write_text('{"m": {"prefill": 1, "sample": 2.5, "train": 3}}')

    assert main([str(tmp_path), "--prices", str(prices), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"] == pytest.approx(2.5)
    assert main([str(tmp_path)]) == 0
    assert "1,000,000 tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    "table",
    ["", "[]", "{}", '{"m": {"prefill": 1}}', '{"m": {"prefill": -1, "sample": 1, "train": 1}}'],
)
def test_prices_that_are_none_are_refused(tmp_path: Path, table: str) -> None:
    """With the form that is wanted."""
    path = tmp_path / "prices.json"
    path.write_text(table)

    with pytest.raises(ConfigError, match="prefill"):
        read_prices(path, "m")


def test_a_run_that_never_was_there(tmp_path: Path) -> None:
    """Or that trained on another backend."""
    with pytest.raises(UnknownNameError, match="--backend tinker"):
        read_usage(tmp_path)
