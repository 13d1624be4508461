"""Trajectories with pictures, and a tiny vision-language model of transformers that learns them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vision_fixture import PATCHES, model_of, processor_of

from rlvr import ConfigError
from rlvr_sad.replay.images import Seen, StoredPicture, prepare
from rlvr_sad.sessions.prepare import trajectories_of
from rlvr_sad.trajectory import TYPES, AgentTrajectory

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def recorded(tmp_path: Path) -> AgentTrajectory:
    """A chat about two pictures, which lie beside the file."""
    for name, colour in (("a.png", (255, 0, 0)), ("b.png", (0, 0, 255))):
        Image.new("RGB", (20, 12), colour).save(tmp_path / name)
    shown = [
        {"type": "text", "text": "look at the picture"},
        {"type": "image_url", "image_url": {"url": "a.png"}},
        {"type": "image_url", "image_url": {"url": "b.png"}},
    ]
    record = {
        "messages": [
            {"role": "user", "content": shown},
            {"role": "assistant", "content": "<think>the door</think> is red"},
        ]
    }
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(record))
    (one,) = trajectories_of([path])
    assert isinstance(one, AgentTrajectory)
    return one


def spelled(seen: Seen, processor: Any) -> list[tuple[str, str]]:
    """Type and text of each token."""
    return [
        (TYPES[kind], processor.tokenizer.decode([token]))
        for token, kind in zip(seen.tokens.ids.tolist(), seen.tokens.types.tolist(), strict=True)
    ]


@pytest.mark.parametrize("layout", ["auto", "text"])
def test_each_picture_has_its_tokens(recorded: AgentTrajectory, layout: str) -> None:
    """In its place, typed other, as many as the model takes; all other tokens as without it."""
    processor = processor_of()
    seen = prepare(recorded, processor, layout=layout)
    tokens = spelled(seen, processor)
    pictures = [i for i, (_, text) in enumerate(tokens) if text == "<image>"]

    assert len(pictures) == 2 * PATCHES
    assert all(tokens[i][0] == "other" for i in pictures)
    assert not seen.tokens.mask[pictures].any()
    assert seen.inputs["pixel_values"].shape == (2, 3, 16, 16)
    text = "".join(text for _, text in tokens)
    assert text.replace("<image>" * PATCHES, "[P]").count("[P]") == 2
    learnt = "".join(text for kind, text in tokens if kind in ("reasoning", "action"))
    assert learnt.startswith("<think>the door</think> is red")


def test_a_text_cannot_forge_a_picture(tmp_path: Path) -> None:
    """`<image>` that somebody wrote is text: plain bytes, no token of a picture."""
    record = {
        "messages": [
            {"role": "user", "content": "say <image>"},
            {"role": "assistant", "content": "an <image> it is"},
        ]
    }
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    (one,) = trajectories_of([tmp_path / "a.jsonl"])
    assert isinstance(one, AgentTrajectory)
    processor = processor_of()
    seen = prepare(one, processor)

    assert processor.tokenizer.convert_tokens_to_ids("<image>") not in seen.tokens.ids
    assert "pixel_values" not in seen.inputs


def test_without_an_image_processor_places_stay_text(recorded: AgentTrajectory) -> None:
    """A language model gets the placeholders as they were read."""
    from types import SimpleNamespace

    processor = processor_of()
    seen = prepare(recorded, SimpleNamespace(tokenizer=processor.tokenizer))

    assert seen.inputs == {}
    assert processor.tokenizer.decode(seen.tokens.ids.tolist()).count("<image>") == 2


def test_the_model_sees_the_pictures(recorded: AgentTrajectory) -> None:
    """Other pixels, other logits at the tokens that are learnt: the picture is really read."""
    processor = processor_of()
    model = model_of(processor, 1)
    seen = prepare(recorded, processor)
    logits = logits_of(model, seen)
    Image.new("RGB", (20, 12), (0, 255, 0)).save(Path(recorded.source).parent / "a.png")
    others = logits_of(model, prepare(recorded, processor))

    assert not torch.allclose(logits, others, atol=1e-6)


def logits_of(model: Any, seen: Seen) -> Any:
    """Logits (n, V) that the n learnt tokens are drawn from."""
    ids = torch.tensor(seen.tokens.ids[None].astype(np.int64))
    out = model(input_ids=ids, attention_mask=torch.ones_like(ids), **seen.inputs)
    places = torch.tensor(np.flatnonzero(seen.tokens.mask))
    return out.logits[0, places - 1]


@pytest.mark.parametrize("top_k", [0, 8])
def test_a_student_that_sees_learns_from_a_teacher_that_sees(
    recorded: AgentTrajectory, top_k: int
) -> None:
    """The loss `distill` on both models' states: its gradient reaches the head and the eyes."""
    from types import SimpleNamespace

    from rlvr import BuildContext, Datum, HiddenStates, TopK

    distill = pytest.importorskip("rlvr_distill.loss")
    config = pytest.importorskip("rlvr_distill.config")
    processor = processor_of()
    seen = prepare(recorded, processor)
    student, teacher = model_of(processor, 1), model_of(processor, 2)
    loss = distill.DistillLoss(config.DistillConfig(teacher="t", top_k=top_k), BuildContext())
    with torch.no_grad():
        theirs = states_of(teacher, seen)
        logprobs = logits_of(teacher, seen).log_softmax(-1)
    best = logprobs.topk(8)
    wanted = torch.tensor(seen.tokens.ids[seen.tokens.mask].astype(np.int64))
    told: Any = HiddenStates(states=theirs.numpy())
    if top_k:
        actual = logprobs.gather(1, wanted[:, None])[:, 0].numpy()
        told = TopK(ids=best.indices.numpy(), logprobs=best.values.numpy(), actual=actual)
    size = SimpleNamespace(vocab_size=len(processor.tokenizer))
    met = SimpleNamespace(name="t", head=head_of(teacher), tokenizer=size)
    loss.meet({"teacher": met})
    mask = seen.tokens.mask
    datum = Datum(
        tokens=seen.tokens.ids,
        mask=mask,
        logprobs=0.0 * mask,
        advantages=1.0 * mask,
        weights=mask / mask.sum(),
        annotations={"span": np.where(mask, np.where(seen.tokens.types == 1, 1.0, 2.0), 0.0)},
        distributions={"teacher": told},
    )
    optimiser = torch.optim.SGD(student.parameters(), lr=0.5)
    values = []
    for _ in range(3):
        outputs = {"hidden": [states_of(student, seen)], "head": [head_of(student)]}
        (datum,) = loss.token_weights([datum])
        nothing = [torch.zeros(len(mask))]
        value, _ = loss([datum], nothing, outputs)
        optimiser.zero_grad()
        value.backward()
        grads = {name: p.grad for name, p in student.named_parameters() if p.grad is not None}
        optimiser.step()
        values.append(value.detach().item())
    if not top_k:
        with torch.no_grad():
            q = logits_of(model_of(processor, 1), seen).log_softmax(-1)
        kl = (logprobs.exp() * (logprobs - q)).sum(-1).mean()
        assert values[0] == pytest.approx(float(kl), rel=1e-4)
    assert values[0] > values[1] > values[2] > 0
    for part in ("lm_head", "multi_modal_projector", "vision_tower"):
        assert any(part in name and bool(g.abs().sum() > 0) for name, g in grads.items()), part


def states_of(model: Any, seen: Seen) -> Any:
    """States (n, C) before the head that the n learnt tokens are drawn from."""
    ids = torch.tensor(seen.tokens.ids[None].astype(np.int64))
    out = model.model(input_ids=ids, attention_mask=torch.ones_like(ids), **seen.inputs)
    places = torch.tensor(np.flatnonzero(seen.tokens.mask))
    return out.last_hidden_state[0, places - 1]


def head_of(model: Any) -> Any:
    """The output head, as the loss takes it."""
    from types import SimpleNamespace

    return SimpleNamespace(weights=model.lm_head.weight, bias=None, scale=1.0, softcap=0.0)


def test_pictures_that_cannot_be_read(tmp_path: Path) -> None:
    """Not there, no picture, on another machine, broken data: each is named."""
    (tmp_path / "no.png").write_text("no picture")
    source = str(tmp_path / "a.jsonl")
    for name, said in (
        ("nothing.png", "No such file"),
        ("no.png", "cannot identify"),
        ("https://example.org/a.png", "another machine"),
        ("data:image/png;base64,%%%", "nvalid base64|non-base64|Only base64|Non-base64"),
    ):
        with pytest.raises(ConfigError, match=said):
            StoredPicture(source=name, file=source).open()


def test_a_picture_that_would_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of more pixels than Pillow opens is named like any other that cannot be read."""
    Image.new("RGB", (20, 20)).save(tmp_path / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ConfigError, match="exceeds limit"):
        StoredPicture(source="large.png", file=str(tmp_path / "a.jsonl")).open()


def test_a_picture_in_the_record_itself(tmp_path: Path) -> None:
    """A `data:` URL."""
    path = tmp_path / "a.png"
    Image.new("RGB", (2, 3), (1, 2, 3)).save(path)
    data = base64.b64encode(path.read_bytes()).decode()
    picture = StoredPicture(source=f"data:image/png;base64,{data}").open()

    assert picture.size == (2, 3)
    assert picture.getpixel((0, 0)) == (1, 2, 3)
