"""Saved weights: bit for bit, whole or not at all, and nowhere else than in their folder."""

from __future__ import annotations

import pytest
import torch

from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.state.checkpoints import About, Checkpoints, locked, parse

PATH = "tinker://session-1:train:0/weights/one"


def about(**changes):
    """Of a checkpoint."""
    fields = {"base": "b", "base_model": "tiny", "rank": 2, "seed": 0, "steps": 5}
    flags = {"train_mlp": True, "train_attn": True, "train_unembed": False}
    return About(**{**fields, **flags, **changes})


def tensors(value=1.5):
    """Numbers of all kinds, also those that no text keeps."""
    odd = torch.tensor([value, 1e-45, -0.0, 3.1415927, 3e38])
    return {"h.0.attn.A": odd, "h.0.attn.B": torch.arange(6.0).view(2, 3).t()}


def test_numbers_come_back_bit_for_bit(tmp_path):
    """Also denormal ones and negative zero, from another process's view of the folder."""
    Checkpoints(tmp_path).save(PATH, about(), {"adapter": tensors(), "optimizer": {}})

    found = Checkpoints(tmp_path)

    for name, tensor in found.load(PATH, "adapter").items():
        wanted = tensors()[name]
        assert torch.equal(
            tensor.contiguous().view(torch.int32), wanted.contiguous().view(torch.int32)
        )
    assert found.about(PATH).steps == 5
    assert found.load(PATH, "optimizer") == {}


def test_nothing_is_overwritten_unasked(tmp_path):
    """A name that is taken is refused; with overwrite the new numbers are there."""
    kept = Checkpoints(tmp_path)
    kept.save(PATH, about(), {"adapter": tensors(1.0)})
    with pytest.raises(Refusal, match="exists already"):
        kept.save(PATH, about(), {"adapter": tensors(2.0)})
    assert kept.load(PATH, "adapter")["h.0.attn.A"][0] == 1.0

    kept.save(PATH, about(steps=6), {"adapter": tensors(2.0)}, overwrite=True)

    assert kept.load(PATH, "adapter")["h.0.attn.A"][0] == 2.0
    assert kept.about(PATH).steps == 6


@pytest.mark.parametrize("moment", ["before the rename", "between the renames"])
def test_a_server_killed_while_it_saves_leaves_the_old_checkpoint(tmp_path, moment):
    """Whenever it died, the next server finds the old numbers and no rest."""
    kept = Checkpoints(tmp_path)
    kept.save(PATH, about(), {"adapter": tensors(1.0)})
    place = tmp_path / "session-1~train~0" / "weights" / "one"
    (place.parent / ".new-1234").mkdir()
    if moment == "between the renames":
        place.rename(place.with_name(".old-one"))

    found = Checkpoints(tmp_path)

    assert found.load(PATH, "adapter")["h.0.attn.A"][0] == 1.0
    assert [one.name for one in place.parent.iterdir()] == ["one"]


def test_a_full_disk_is_said_and_keeps_the_old_checkpoint(tmp_path, monkeypatch):
    """The reason is the system's; what was there before is there still, and no rest."""
    kept = Checkpoints(tmp_path)
    kept.save(PATH, about(), {"adapter": tensors(1.0)})

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rlvr_tinker_server.state.checkpoints._write", full)
    with pytest.raises(Refusal, match="one cannot be written: No space left on device"):
        kept.save(PATH, about(), {"adapter": tensors(2.0)}, overwrite=True)
    assert kept.load(PATH, "adapter")["h.0.attn.A"][0] == 1.0
    assert [one.name for one in (tmp_path / "session-1~train~0" / "weights").iterdir()] == ["one"]


def test_damage_is_found(tmp_path):
    """A file that is not the one that was saved is refused, not loaded."""
    kept = Checkpoints(tmp_path)
    kept.save(PATH, about(), {"adapter": tensors()})
    file = tmp_path / "session-1~train~0" / "weights" / "one" / "adapter.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(Refusal, match="is damaged: adapter"):
        kept.load(PATH, "adapter")
    (file.parent / "about.json").write_text("{")
    with pytest.raises(Refusal, match="json cannot be read"):
        kept.about(PATH)
    assert kept.listed() == []


def test_weights_for_sampling_hold_no_optimiser(tmp_path):
    """What is not there is said."""
    kept = Checkpoints(tmp_path)
    kept.save(PATH, about(), {"adapter": tensors()})
    with pytest.raises(Refusal, match="saved for sampling only"):
        kept.load(PATH, "optimizer")


def test_time_to_live(tmp_path, monkeypatch):
    """An expired checkpoint is gone; its time can be changed before."""
    now = [1000.0]
    monkeypatch.setattr("rlvr_tinker_server.state.checkpoints.time.time", lambda: now[0])
    kept = Checkpoints(tmp_path)
    kept.save(PATH, about(lives_s=3600), {"adapter": tensors()})
    now[0] += 3000
    kept.expire(PATH, 3600)
    now[0] += 3000
    assert kept.about(PATH).steps == 5
    now[0] += 601
    with pytest.raises(Refusal, match="no checkpoint") as refusal:
        kept.load(PATH, "adapter")
    assert refusal.value.status == 404
    assert not list((tmp_path / "session-1~train~0" / "weights").iterdir())


@pytest.mark.parametrize(
    "path",
    [
        "",
        "one",
        "file:///etc/passwd",
        "tinker://run/weights",
        "tinker://run/other/one",
        "tinker://run/weights/..",
        "tinker://../weights/one",
        "tinker://run/weights/a/b",
        "tinker://run/weights/.hidden",
        "tinker://run/weights/" + "x" * 200,
        "tinker:///weights/one",
        "tinker://a\x00b/weights/one",
    ],
)
def test_paths_that_lead_elsewhere_are_refused(tmp_path, path):
    """Nothing outside of the folder is read or written, whatever a client asks for."""
    kept = Checkpoints(tmp_path / "state")
    with pytest.raises(Refusal):
        parse(path)
    for ask in (kept.about, kept.delete, lambda p: kept.save(p, about(), {})):
        with pytest.raises(Refusal):
            ask(path)
    assert [one.name for one in tmp_path.iterdir()] == ["state"]
    assert not list((tmp_path / "state").iterdir())


def test_listing_and_deleting(tmp_path):
    """All checkpoints by run, oldest first, with the run's id as the client knows it."""
    kept = Checkpoints(tmp_path)
    other = "tinker://session-2:train:0/sampler_weights/two"
    kept.save(PATH, about(), {"adapter": tensors()})
    kept.save(other, about(), {"adapter": tensors()})

    assert [path for path, _ in kept.listed()] == [PATH, other]
    assert [path for path, _ in kept.listed("session-2:train:0")] == [other]
    kept.delete(PATH)
    assert [path for path, _ in kept.listed()] == [other]


def test_a_folder_is_one_servers_own(tmp_path):
    """Two servers would delete each other's halves: the second is refused."""
    with (
        locked(tmp_path),
        pytest.raises(Refusal, match="is used by another server"),
        locked(tmp_path),
    ):
        pass
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("run", ["*", "..", "session-*", "[s]ession-1:train:0", ""])
def test_a_pattern_is_no_run(tmp_path, run):
    """A run is listed by its own name; what a name is made of is never searched by."""
    kept = Checkpoints(tmp_path)
    kept.save(PATH, about(), {"adapter": tensors()})

    assert [path for path, _ in kept.listed("session-1:train:0")] == [PATH]
    assert kept.listed(run) == []
