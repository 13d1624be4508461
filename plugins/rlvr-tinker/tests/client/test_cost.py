"""What a run has cost: tokens times the prices that a person gives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rlvr import BuildContext, ConfigError, Datum, RunInfo, UnknownNameError
from rlvr.testing.backend_losses import LikelihoodLoss
from rlvr_tinker import plugin
from rlvr_tinker.backend import TinkerBackend
from rlvr_tinker.commands.cost import bill, main, read_parts, read_prices
from rlvr_tinker.config import TinkerConfig
from rlvr_tinker.service.usage import LEDGER, Usage, read_ledger
from rlvr_tinker.teacher import TinkerTeacher


def test_the_bill_by_hand() -> None:
    """2 M prefilled at 0.1, 1 M sampled at 0.4, 3 M trained at 1, 0.5 M scored as prefill."""
    usage = Usage(prefilled=2_000_000, sampled=1_000_000, trained=3_000_000, scored=500_000)

    lines = bill(usage, {"prefill": 0.1, "sample": 0.4, "train": 1.0})

    assert [line.cost for line in lines] == pytest.approx([0.2, 0.4, 3.0, 0.05])


def test_counts_are_kept_beside_the_run(tmp_path: Path) -> None:
    """The sum of the policy's tokens, in a file of its own."""
    Usage(model="m", prefilled=3, sampled=4, trained=5, scored=6, states=7).write(tmp_path)

    (file,) = tmp_path.iterdir()
    assert file.name == "tinker-usage.json"
    counts = {"prefilled": 3, "sampled": 4, "trained": 5, "scored": 6, "states": 7}
    assert json.loads(file.read_text()) == {"model": "m", **counts}


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the total; as JSON too."""
    spent(tmp_path).spend(sampled=1_000_000)
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
        read_parts(tmp_path)


def spent(run: Path, role: str = "policy", model: str = "m") -> Usage:
    """The counts of a model in a run, as one that goes on with it finds them."""
    usage = Usage(model=model, role=role)
    usage.begin(run)
    return usage


def test_tokens_are_written_down_as_they_are_spent(tmp_path: Path) -> None:
    """A process that is killed has closed nothing: the next one counts on."""
    first = spent(tmp_path)
    first.spend(prefilled=3, sampled=4)
    first.spend(sampled=5)
    second = spent(tmp_path)
    second.spend(sampled=1)

    assert spent(tmp_path) == Usage(model="m", prefilled=3, sampled=10)


def test_each_model_has_its_own_lines(tmp_path: Path) -> None:
    """A teacher is another one than the policy, also where it is the same model."""
    spent(tmp_path).spend(sampled=1)
    spent(tmp_path, "teacher").spend(scored=13_335)
    spent(tmp_path, "teacher", "large").spend(scored=7)

    found = {(one.role, one.model): one.scored for one in read_parts(tmp_path)}
    assert found == {("policy", "m"): 0, ("teacher", "m"): 13_335, ("teacher", "large"): 7}


@pytest.mark.parametrize(
    "damage",
    [
        b'{"model": "m", "role": "policy", "sam',
        b"\xff\xfe\x00",
        b"[1]",
        b"null",
        b"[" * 100_000,
        b'{"model": "m", "role": "policy", "sampled": -5}',
        b'{"model": "m", "role": "policy", "sampled": 1e3}',
        b'{"model": "m", "role": "policy", "sampled": true}',
        b'{"model": "m", "role": "policy", "sampled": NaN}',
        b'{"model": ["m"], "role": "policy", "sampled": 5}',
        b'{"role": "policy", "sampled": 5}',
        b"\n\n",
    ],
    ids=lambda damage: repr(damage[:60]),
)
def test_a_damaged_line_costs_that_line_only(tmp_path: Path, damage: bytes) -> None:
    """What stands before it and what comes after it is counted, cut short or not."""
    spent(tmp_path).spend(sampled=1)
    with (tmp_path / LEDGER).open("ab") as file:
        file.write(damage)
    spent(tmp_path).spend(sampled=2)

    assert spent(tmp_path) == Usage(model="m", sampled=3)


def test_a_ledger_that_cannot_be_written_ends_no_run(tmp_path: Path) -> None:
    """A full disk shows itself where the run writes."""
    (tmp_path / LEDGER).mkdir()
    usage = Usage(model="m", run_dir=tmp_path)
    usage.spend(sampled=3)

    assert usage.sampled == 3


def test_the_command_bills_each_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its own prices; the sums are over all."""
    spent(tmp_path, "teacher", "large").spend(scored=2_000_000)
    spent(tmp_path).spend(sampled=1_000_000, scored=1_000_000)
    table = {"m": {"prefill": 1, "sample": 2.5, "train": 3}}
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps(table))

    with pytest.raises(ConfigError, match="large"):
        main([str(tmp_path), "--prices", str(prices)])
    table["large"] = {"prefill": 10, "sample": 0, "train": 0}
    prices.write_text(json.dumps(table))
    assert main([str(tmp_path), "--prices", str(prices), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["model"], told["tokens"]["scored"]) == ("m", 3_000_000)
    assert told["total"] == pytest.approx(2.5 + 1 + 20)
    assert main([str(tmp_path)]) == 0
    assert "teacher large\n" in capsys.readouterr().out


def test_what_the_service_was_asked_is_in_the_ledger(
    make_backend: Callable[..., TinkerBackend], data: Sequence[Datum], tmp_path: Path
) -> None:
    """By policy and teacher; nothing needs to be closed for it."""
    tokens = sum(len(datum.tokens) for datum in data)
    loss = LikelihoodLoss()

    async def work() -> None:
        context = BuildContext(model="tinker:", run_dir=tmp_path)
        async with TinkerTeacher(TinkerConfig(timeout_s=20.0), context) as teacher:
            await teacher.logprobs(data)
            (found,) = read_ledger(tmp_path)
            assert (found.role, found.scored) == ("teacher", tokens)
        async with make_backend(run_dir=tmp_path) as backend:
            await backend.logprobs(data, "policy")
            await backend.update(data, loss)
            found = read_parts(tmp_path)[0]
            assert (found.role, found.scored, found.trained) == ("policy", 2 * tokens, tokens)

    asyncio.run(work())


def test_a_run_ends_with_its_bill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tokens of the policy and of each teacher; nothing of a run that asked for none."""
    run = RunInfo(
        id="r", directory=tmp_path, plugin="p", algo="opd", model="m", steps=1, seed=1, config={}
    )
    plugin.rlvr_run_finished(run)
    assert capsys.readouterr().err == ""
    for role, counts in (("teacher", {"scored": 13_335}), ("policy", {"sampled": 70})):
        usage = Usage(model="tiny", role=role)
        usage.begin(tmp_path)
        usage.spend(**counts)

    plugin.rlvr_run_finished(run)

    first, second, third = capsys.readouterr().err.splitlines()
    assert first.endswith("policy tiny: 70 sampled")
    assert second.endswith("teacher tiny: 13,335 scored")
    assert "rlvr tinker cost" in third
