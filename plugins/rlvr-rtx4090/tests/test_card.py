"""The card: found, refused, read; the backend around it, with its computing done on the CPU."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch
from rlvr_process import run_rlvr

from rlvr import Backend, BuildContext, ConfigError, Datum, PrerequisiteError, Situation
from rlvr.testing import BackendContract, PluginContract
from rlvr_algos.losses.grpo import GrpoLoss
from rlvr_rtx4090 import card as cards
from rlvr_rtx4090 import doctor, presets
from rlvr_rtx4090.backend import Rtx4090Backend
from rlvr_rtx4090.card import GIB, Card, Reading, read_card, require_card
from rlvr_rtx4090.measure import bandwidth, matmul_peak
from rlvr_torch.config import TorchConfig
from rlvr_torch.training.optimizer import OptimSettings

NEW = "gpt2:new?layers=2&heads=2&width=32"


class TestPlugin(PluginContract):
    """What every plugin module must hold."""

    module = "rlvr_rtx4090.plugin"


@pytest.mark.usefixtures("pretended")
class TestBackend(BackendContract):
    """The contract of `torch`, held by the same code with a card around it."""

    def make_backend(self) -> Backend:
        context = BuildContext(model=NEW, steps=8, train=OptimSettings(lr=1e-2))
        return Rtx4090Backend(TorchConfig(dtype="float32", microbatch_tokens=20), context)


def test_a_reading_is_what_nvidia_smi_says() -> None:
    """Numbers in their places, mebibytes as gibibytes, and the driver's reasons by their bits."""
    line = "412.35, 450.00, 83, 20480, 2310, 0x0000000000000024"
    found = Reading.parse(line)

    assert found == Reading(
        power_w=412.35, limit_w=450.0, temperature_c=83.0, memory_gib=20.0, clock_mhz=2310.0,
        slowed_by=("heat",),
    )  # fmt: skip
    assert found.metrics() == {
        "gpu/power_w": 412.35, "gpu/temperature_c": 83.0, "gpu/memory_gib": 20.0,
        "gpu/clock_mhz": 2310.0, "gpu/throttled": 1.0,
    }  # fmt: skip


def test_the_power_limit_is_no_trouble() -> None:
    """A card at its power limit (0x4) works as it should; idle (0x1) likewise."""
    assert Reading.parse("450, 450, 70, 1024, 2700, 0x5").slowed_by == ()
    assert Reading.parse("450, 450, 70, 1024, 2700, 0xC8").slowed_by == (
        "hardware", "heat", "power supply",
    )  # fmt: skip


def test_what_a_card_does_not_tell_is_left_out() -> None:
    """`[N/A]` and `[Not Supported]` give no metric."""
    found = Reading.parse("[N/A], [N/A], 60, 1024, [Not Supported], [N/A]").metrics()

    assert set(found) == {"gpu/temperature_c", "gpu/memory_gib", "gpu/throttled"}


@pytest.mark.parametrize("line", ["", "1, 2", "a, b, c, d, e, 0x0"])
def test_other_text_is_no_reading(line: str) -> None:
    with pytest.raises(ValueError):
        Reading.parse(line)


@pytest.mark.parametrize(
    ("script", "is_read"),
    [
        ("echo '99.5, 450, 50, 512, 2000, 0x0'", True),
        ("echo 'No devices were found'; exit 6", False),
        ("echo nonsense", False),
        ("true", False),
    ],
)
def test_the_program_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, is_read: bool
) -> None:
    """nvidia-smi is asked for this card by its id; where it fails there is no reading."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/asked\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = read_card(Card(name="x", memory=1, capability=(8, 9), uuid="GPU-1"))

    assert (tmp_path / "asked").read_text().split()[-2:] == ["-i", "GPU-1"]
    assert (found is not None and found.power_w == 99.5) == is_read
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert read_card(Card(name="x", memory=1, capability=(8, 9))) is None


@pytest.mark.parametrize("capability", [None, (7, 5)])
def test_without_a_fit_card_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int] | None
) -> None:
    """No card, and one without bfloat16, are named; the way out is, too."""
    old = Card(name="T4", memory=GIB, capability=capability) if capability else None
    monkeypatch.setattr(cards.Card, "find", lambda: old)
    with pytest.raises(PrerequisiteError, match="--backend torch") as caught:
        require_card()
    assert ("T4" in str(caught.value)) == bool(old)
    assert not doctor.check_card().ok


def test_another_card_gets_a_plan_for_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A 48 GB card is taken, named as another one, and given larger batches than 24 GB."""
    values = {f"torch.{k}": v for k, v in vars_of(TorchConfig()).items()}
    values |= {"sampler.max_tokens": 512, "sampler.group_size": 8}
    situation = Situation(
        model="gpt2:new?layers=12&heads=12&width=768&positions=1024", trains=True, values=values
    )
    chosen = {}
    for gib in (8, 80):
        found = Card(name="NVIDIA L40S", memory=gib * GIB, capability=(8, 9))
        monkeypatch.setattr(cards.Card, "find", lambda found=found: found)
        chosen[gib] = presets.fit_card(situation)
        assert all("NVIDIA L40S" in one.why for one in chosen[gib].values())
    assert chosen[80]["torch.dtype"].value == "bfloat16"
    assert not found.is_meant
    small, large = (chosen[g].get("torch.decode_rows") for g in (8, 80))
    assert large is None or (small is not None and small.value < large.value)


def vars_of(config: TorchConfig) -> dict[str, object]:
    return {one.name: getattr(config, one.name) for one in TorchConfig.__attrs_attrs__}


def test_what_a_person_said_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan works around `torch.dtype=float32`; a `gpt2:` model never gets adapters."""
    tiny = Card(name="x", memory=GIB, capability=(8, 9))
    monkeypatch.setattr(cards.Card, "find", lambda: tiny)
    values = {f"torch.{k}": v for k, v in vars_of(TorchConfig()).items()}
    values |= {"sampler.max_tokens": 512, "torch.dtype": "float32"}
    model = "gpt2:new?layers=12&heads=12&width=768&positions=1024"
    found = presets.fit_card(
        Situation(model=model, trains=True, values=values, said=frozenset({"torch.dtype"}))
    )

    assert not {"torch.dtype", "torch.lora_rank", "torch.quantize"} & set(found)
    assert found["torch.microbatch_tokens"].value < 8192
    assert presets.fit_card(Situation(model=model, values=values)) == {}


@pytest.mark.usefixtures("pretended")
def test_heat_is_among_the_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    """Each update tells the card's state; the first that is slowed by heat warns."""
    context = BuildContext(model=NEW, steps=8, train=OptimSettings(lr=1e-2))
    tokens = np.arange(8) + 97
    datum = Datum(
        tokens=tokens,
        mask=np.arange(8) > 3,
        logprobs=np.full(8, -5.0),
        advantages=np.ones(8),
        weights=np.ones(8),
    )
    backend = Rtx4090Backend(TorchConfig(), context)
    metrics = asyncio.run(backend.update([datum], GrpoLoss(None, context)))
    asyncio.run(backend.update([datum], GrpoLoss(None, context)))
    asyncio.run(backend.__aexit__())
    told = capsys.readouterr()

    assert metrics["gpu/power_w"] == 410.5
    assert metrics["gpu/throttled"] == 1.0
    assert metrics["grad/norm"] > 0
    assert (told.out + told.err).count("card_slowed") == 1
    with pytest.raises(ConfigError, match=r"torch\.device=mps"):
        Rtx4090Backend(TorchConfig(device="mps"), context)


@pytest.mark.integration
@pytest.mark.parametrize(
    "words",
    [
        ["--plugin", "cvdp", "--algo", "grpo"],
        [
            "--plugin", "chess", "--algo", "grpo", "--preset", "rookworld", "--model",
            "gpt2:new?layers=12&heads=12&width=768&positions=1024",
        ],
    ],
    ids=["cvdp", "chess"],
)  # fmt: skip
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
def test_a_run_without_a_card_ends_with_exit_4(tmp_path: Path, words: list[str]) -> None:
    """The line that docs/gpu.md shows, up to the card."""
    done = run_rlvr("run", *words, "--backend", "rtx4090", cwd=tmp_path, timeout_s=240)

    assert done.returncode == 4, done.stderr
    assert "sees no NVIDIA card" in done.stderr
    assert "Traceback" not in done.stderr


def test_measurements_are_of_this_device() -> None:
    """A processor multiplies at more than nothing and less than a petaflop; copies likewise."""
    cpu = torch.device("cpu")

    assert 1e-4 < matmul_peak(cpu, torch.float32, sizes=(128,), least_s=0.01) < 1000
    assert 0.01 < bandwidth(cpu, mib=8, least_s=0.01) < 10_000


@pytest.mark.parametrize(("tflops", "is_fine"), [(158.0, True), (200.0, False)])
def test_a_figure_above_the_data_sheet_is_refused(
    monkeypatch: pytest.MonkeyPatch, tflops: float, is_fine: bool
) -> None:
    """RookWorld's 200 TFLOP/s are above the 165 of the card: the check fails and says why."""
    ada = Card(name="NVIDIA GeForce RTX 4090", memory=24 * GIB, capability=(8, 9))
    monkeypatch.setattr(doctor.Card, "find", lambda: ada)
    monkeypatch.setattr(doctor, "matmul_peak", lambda device: tflops)
    monkeypatch.setattr(doctor, "bandwidth", lambda device: 930.0)
    found = doctor.check_speed()

    assert found.ok == is_fine
    assert ("believable" in found.fix) != is_fine


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
def test_the_doctor_says_that_there_is_no_card() -> None:
    for check in (doctor.check_card, doctor.check_kernels, doctor.check_speed):
        assert not check().ok
        assert "no NVIDIA card" in check().found
