"""Vision-language models of transformers: tiny ones of six families, with random weights."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import attrs
import numpy as np
import pytest
import torch

from rlvr import (
    BackendError,
    BuildContext,
    ConfigError,
    Datum,
    ImageProcessor,
    Message,
    TeacherRequest,
    types,
)
from rlvr.testing.backend import LikelihoodLoss
from rlvr_torch.backend import TorchBackend
from rlvr_torch.config import TorchConfig
from rlvr_torch.models.export import export
from rlvr_torch.models.hf.load import load_net, load_processor, read_model
from rlvr_torch.models.hf.supported import build_net
from rlvr_torch.models.hf.vision import HFVisionNet
from rlvr_torch.teacher import TorchTeacher
from rlvr_torch.training.activation_checkpointing import checkpoint_layers
from rlvr_torch.training.logprobs import sequence_logprobs, trunk
from rlvr_torch.training.microbatches import microbatches
from rlvr_torch.training.optimizer import OptimSettings

transformers = pytest.importorskip("transformers")
Image = pytest.importorskip("PIL.Image")

CPU = TorchConfig(device="cpu")
SIZE, PATCH = 16, 8
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
IN_PARTS = TEMPLATE.replace(
    "{{ m.content }}",
    "{% for p in m.content if p.type == 'text' %}{{ p.text }}{% endfor %}",
)
SEES = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
SEES |= {"num_attention_heads": 2, "image_size": SIZE, "patch_size": PATCH}
SPEAKS = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 3}
SPEAKS |= {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 256}
SPEAKS |= {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 1}
LINEAR = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8}
LINEAR |= {
    "linear_value_head_dim": 8,
    "head_dim": 16,
    "rope_parameters": {
        "rope_type": "default",
        "mrope_section": [1, 1, 2],
        "rope_theta": 1e4,
        "partial_rotary_factor": 0.5,
        "mrope_interleaved": True,
    },
}
LINEAR |= {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}


@attrs.frozen
class Plain(types.Image):
    """A picture of one colour."""

    colour: tuple[int, int, int]
    width: int = 20
    height: int = 12

    def open(self):
        """The picture."""
        return Image.new("RGB", (self.width, self.height), self.colour)


RED, BLUE = Plain((255, 0, 0)), Plain((0, 0, 255))


def tokenizer_of(*controls, template=TEMPLATE, **named):
    """Byte-level, with control tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290,
        special_tokens=["<eos>", "<pad>", *controls],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(["the door is red"], trainer)
    found = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<eos>", pad_token="<pad>", extra_special_tokens=named
    )
    found.chat_template = template
    return found


def llava(tokenizer=None):
    """A picture is the patches of its middle: four tokens."""
    tokenizer = tokenizer or tokenizer_of("<image>")
    size = {"height": SIZE, "width": SIZE}
    processor = transformers.LlavaProcessor(
        image_processor=transformers.CLIPImageProcessorPil(size=size, crop_size=size),
        tokenizer=tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="full",
        num_additional_image_tokens=0,
        image_token="<image>",
    )
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**SEES, projection_dim=16),
        text_config=transformers.LlamaConfig(vocab_size=len(tokenizer), **SPEAKS),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
    )
    return processor, transformers.LlavaForConditionalGeneration(config)


def idefics3():
    """A picture is cut into tiles: rows of text and picture tokens, as many as it is large."""
    tiles = [f"<row_{i}_col_{j}>" for i in range(1, 3) for j in range(1, 3)]
    around = ("<fake_token_around_image>", "<image>", "<global-img>", "<end_of_utterance>")
    tokenizer = tokenizer_of(*around, *tiles)
    processor = transformers.Idefics3Processor(
        image_processor=transformers.Idefics3ImageProcessorPil(
            size={"longest_edge": 2 * SIZE}, max_image_size={"longest_edge": SIZE}
        ),
        tokenizer=tokenizer,
        image_seq_len=4,
        chat_template=TEMPLATE,
    )
    config = transformers.Idefics3Config(
        vision_config=SEES | {"patch_size": 4},
        text_config=transformers.LlamaConfig(vocab_size=len(tokenizer), **SPEAKS),
        scale_factor=2,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
    )
    return processor, transformers.Idefics3ForConditionalGeneration(config)


def gemma3():
    """Tokens of one picture see each other both ways; two of three layers see six tokens."""
    names = {
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
        "image_token": "<image_soft_token>",
    }
    tokenizer = tokenizer_of(*names.values(), **names)
    processor = transformers.Gemma3Processor(
        image_processor=transformers.Gemma3ImageProcessorPil(size={"height": SIZE, "width": SIZE}),
        tokenizer=tokenizer,
        image_seq_length=4,
        chat_template=TEMPLATE,
    )
    ids = tokenizer.convert_tokens_to_ids
    config = transformers.Gemma3Config(
        vision_config=SEES | {"patch_size": 4},
        text_config=SPEAKS
        | {
            "vocab_size": len(tokenizer),
            "head_dim": 8,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        mm_tokens_per_image=4,
        image_token_index=ids(names["image_token"]),
        boi_token_index=ids(names["boi_token"]),
        eoi_token_index=ids(names["eoi_token"]),
    )
    return processor, transformers.Gemma3ForConditionalGeneration(config)


class QwenProcessor:
    """What Qwen2-VL's own does with pictures; that one needs torchvision, for films."""

    image_token = "<|image_pad|>"

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.image_processor = transformers.Qwen2VLImageProcessorPil(
            patch_size=4, merge_size=2, temporal_patch_size=2, min_pixels=64, max_pixels=512
        )

    def __call__(self, text, images, return_tensors, add_special_tokens):
        """Each image token becomes as many as the picture has patches, four by four."""
        found = self.image_processor(images=images, return_tensors=return_tensors)
        parts = text[0].split(self.image_token)
        counts = [int(grid.prod()) // 4 for grid in found["image_grid_thw"]]
        text = parts[0] + "".join(
            self.image_token * n + part for n, part in zip(counts, parts[1:], strict=True)
        )
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return {"input_ids": torch.tensor([ids]), **found}


def qwen(kind, seeing, speaking=None):
    """The parts that Qwen's families share."""
    controls = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    tokenizer = tokenizer_of(*controls)
    start, end, image, video = tokenizer.convert_tokens_to_ids(list(controls))
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}
    config = transformers.AutoConfig.for_model(
        kind,
        vision_config={"depth": 2, "num_heads": 2, "hidden_size": 16, "patch_size": 4, **seeing},
        text_config={
            **SPEAKS,
            "vocab_size": len(tokenizer),
            "head_dim": 8,
            "rope_parameters": rope,
            **(speaking or {}),
        },
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )
    model = transformers.AutoModelForImageTextToText.from_config(config)
    return QwenProcessor(tokenizer), model.float()


def qwen2_vl():
    """Positions of three dimensions, as many tokens as a picture is large."""
    return qwen("qwen2_vl", {"embed_dim": 16, "mlp_ratio": 2})


def qwen3_vl():
    """The same, and what sees speaks to several layers of the language model."""
    own = {"intermediate_size": 16, "out_hidden_size": 16, "num_position_embeddings": 16}
    return qwen("qwen3_vl", {**own, "deepstack_visual_indexes": [0, 1]})


def qwen3_5():
    """Some layers of the language model keep a state; parts of heads have positions."""
    own = {"intermediate_size": 16, "out_hidden_size": 16, "num_position_embeddings": 16}
    return qwen("qwen3_5", own, LINEAR)


FAMILIES = {one.__name__: one for one in (llava, idefics3, gemma3, qwen2_vl, qwen3_vl, qwen3_5)}


@pytest.fixture(scope="session")
def make_vision(tmp_path_factory):
    """The directory of a tiny model of a family with a seed, its weights far from zero."""
    made = {}

    def make(family, seed=1):
        if (family, seed) not in made:
            where = tmp_path_factory.mktemp(f"{family}-{seed}")
            torch.manual_seed(seed)
            processor, model = FAMILIES[family]()
            with torch.no_grad():
                for value in model.parameters():
                    value += 0.1 * torch.randn(value.shape)
            model.save_pretrained(where)
            (processor.tokenizer if "qwen" in family else processor).save_pretrained(where)
            made[family, seed] = where
        return made[family, seed]

    return make


@pytest.fixture(params=FAMILIES)
def net(request, make_vision):
    """A net of each family."""
    where = str(make_vision(request.param))
    if "qwen" not in request.param:
        return load_net(where)
    processor = QwenProcessor(transformers.AutoTokenizer.from_pretrained(where))
    return build_net(read_model(where), where, ImageProcessor(lambda: processor, where))


@pytest.fixture
def image_processor(make_vision):
    """LLaVA's."""
    return load_net(str(make_vision("llava"))).image_processor


def datum_of(image_processor, *parts, learnt=3, **changes):
    """Text and pictures in order; the last tokens are learnt."""
    ids = []
    for part in parts:
        own = (
            image_processor.processor.tokenizer(part)["input_ids"]
            if isinstance(part, str)
            else None
        )
        ids += image_processor.tokens(part.open()) if own is None else own
    mask = np.arange(len(ids)) >= len(ids) - learnt
    fields = {
        "tokens": ids,
        "mask": mask,
        "logprobs": np.where(mask, -1.0, 0.0),
        "advantages": 1.0 * mask,
        "weights": mask / learnt,
        "pictures": [part for part in parts if isinstance(part, Plain)],
        "problem_id": "p",
    }
    return Datum(**{**fields, **changes})


def theirs(net, datum):
    """States (n, C) by the model's own code and its eager attention."""
    ids = torch.tensor(datum.tokens[None].astype(np.int64))
    inputs = {}
    if datum.pictures:
        inputs = net.image_processor.pixels([picture.open() for picture in datum.pictures])
    types = (ids == net.image_token).long()
    if net.model.config.model_type == "gemma3":
        inputs["token_type_ids"] = types
    if "qwen" in net.model.config.model_type:
        inputs["mm_token_type_ids"] = types
    net.decoder.set_attn_implementation("eager")
    try:
        out = net.model.base_model(input_ids=ids, attention_mask=torch.ones_like(ids), **inputs)
    finally:
        net.decoder.set_attn_implementation(net.attention)
    return out.last_hidden_state[0, torch.tensor(np.flatnonzero(datum.mask)) - 1]


def test_states_are_those_of_the_models_own_code(net):
    """Two pictures of two sizes between text, in a micro-batch with text alone: to 1e-5."""
    small, large = Plain((200, 30, 0), 9, 17), Plain((0, 90, 250), 40, 30)
    seen = datum_of(net.image_processor, "the door ", small, " is red ", large, " the door is")
    text = [
        datum_of(net.image_processor, "the door is", tail) for tail in (" red", " the red door")
    ]
    data = [text[0], seen, text[1]]
    with torch.no_grad():
        ours = trunk(net, data, torch.float32)
        wanted = torch.cat([theirs(net, datum) for datum in data])

    assert isinstance(net, HFVisionNet)
    assert ours.shape == (9, 16)
    assert wanted.abs().max() > 0.5
    torch.testing.assert_close(ours, wanted, atol=1e-5, rtol=1e-5)


def test_layers_are_computed_again_with_their_pictures(net):
    """Gradients of checkpointed layers are the same bits, in a thread of autograd's as well."""
    seen = datum_of(net.image_processor, "the door ", RED, " is red")
    weights = list(net.module.parameters())

    def gradients():
        loss = trunk(net, [seen], torch.float32).square().sum()
        with ThreadPoolExecutor(1) as other:  # as the backward pass on a GPU
            return other.submit(torch.autograd.grad, loss, weights, allow_unused=True).result()

    wanted = gradients()
    checkpoint_layers(net)
    found = gradients()
    assert sum(1 for one in wanted if one is not None and one.any()) > len(weights) / 2
    for mine, theirs in zip(found, wanted, strict=True):
        assert theirs is mine is None or torch.equal(mine, theirs)


def test_other_pixels_other_logprobs(net):
    """The picture itself is read, and not only its place."""
    data = [datum_of(net.image_processor, "a ", one, " the door is") for one in (RED, BLUE)]
    assert np.array_equal(data[0].tokens, data[1].tokens)
    with torch.no_grad():
        one, other = sequence_logprobs(net, data)

    assert (one - other).abs().max() > 1e-4


def backend_of(directory, config=CPU, **train):
    """A backend that trains it."""
    settings = OptimSettings(**{"lr": 1e-2, **train})
    return TorchBackend(config, BuildContext(model=f"hf:{directory}", train=settings, seed=3))


def run(coroutine):
    """In a fresh event loop."""
    return asyncio.run(coroutine)


async def trained(backend, data, steps=1):
    """The metrics of some steps."""
    return [await backend.update(data, LikelihoodLoss()) for _ in range(steps)]


def changed(backend, before):
    """Names of the weights that are others than before."""
    return {n for n, v in backend.model.named_parameters() if not torch.equal(v, before[n])}


def weights(backend):
    """Copies of them."""
    return {name: value.detach().clone() for name, value in backend.model.named_parameters()}


@pytest.mark.parametrize("vision", ["frozen", "trained"])
def test_what_is_trained(make_vision, image_processor, vision):
    """The language model and its head; what sees and what joins the two on demand only."""
    backend = backend_of(make_vision("llava"), attrs.evolve(CPU, vision=vision))
    before = weights(backend)
    data = [datum_of(image_processor, "a ", one, " the door is") for one in (RED, BLUE)]
    metrics = run(trained(backend, data, 3))
    parts = {name.removeprefix("model.").partition(".")[0] for name in changed(backend, before)}

    assert metrics[2]["loss"] < metrics[1]["loss"] < metrics[0]["loss"]
    assert {"language_model", "lm_head"} <= parts
    assert ({"vision_tower", "multi_modal_projector"} <= parts) == (vision == "trained")
    assert len(parts) == (4 if vision == "trained" else 2)


def test_adapters_go_beside_the_language_model(make_vision, image_processor):
    """All its linear layers, none of those that see; a training of those is refused."""
    lora = attrs.evolve(CPU, lora_rank=2)
    backend = backend_of(make_vision("llava"), lora)
    before = weights(backend)
    run(trained(backend, [datum_of(image_processor, "a ", RED, " the door is")]))
    found = changed(backend, before)

    assert found
    assert all("language_model.layers" in name and "lora_" in name for name in found)
    adapted = {name for name in before if "lora_A" in name}
    assert len(adapted) == 3 * 7
    with pytest.raises(ConfigError, match="language model only"):
        backend_of(make_vision("llava"), attrs.evolve(lora, vision="trained"))


@pytest.mark.one_of(2)
@pytest.mark.parametrize("rank", [0, 2])
def test_a_checkpoint_goes_on_bit_for_bit_and_sees(make_vision, image_processor, tmp_path, rank):
    """Saved after two steps and loaded elsewhere: the same third step; an export has eyes."""
    config = attrs.evolve(CPU, lora_rank=rank)
    data = [datum_of(image_processor, "a ", one, " the door is") for one in (RED, BLUE)]
    first = backend_of(make_vision("llava"), config)
    run(trained(first, data, 2))
    (tmp_path / "kept").mkdir()
    run(first.save(tmp_path / "kept"))
    (there,) = run(trained(first, data))
    second = backend_of(make_vision("llava"), config)
    run(second.load(tmp_path / "kept"))
    (here,) = run(trained(second, data))

    assert here == there
    assert not changed(second, weights(first))
    export(tmp_path / "kept", tmp_path / "out", merge=True)
    exported = load_net(str(tmp_path / "out"))
    assert type(load_processor(str(tmp_path / "out"))).__name__ == "LlavaProcessor"
    kept = backend_of(make_vision("llava"), config)
    run(kept.load(tmp_path / "kept"))
    with torch.no_grad():
        wanted, found = (sequence_logprobs(one, data)[0] for one in (kept.net, exported))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("vision", ["trained", "frozen"])
def test_copies_of_weights_see_the_same(make_vision, image_processor, vision):
    """In bfloat16, two updates: the bits of autocast, in the vision tower too."""
    config = attrs.evolve(CPU, dtype="bfloat16", vision=vision)
    data = [datum_of(image_processor, "a ", one, " the door is") for one in (RED, BLUE)]
    found = []
    for has_copies in (True, False):
        backend = backend_of(
            make_vision("llava"), attrs.evolve(config, weight_copies=has_copies), lr=1e-2
        )
        metrics = run(trained(backend, data, 2))
        found.append((metrics, weights(backend), len(backend._storage.copies)))
    (metrics, mine, copies), (others, theirs, none) = found
    assert copies > none == 0
    assert metrics == others
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_a_teacher_sees(make_vision, image_processor):
    """States with its head, likeliest tokens and logprobs say the same of a sequence."""
    teacher = TorchTeacher(CPU, BuildContext(model=f"hf:{make_vision('llava', 2)}"))
    datum = datum_of(image_processor, "a ", RED, " the door is")
    other = attrs.evolve(datum, pictures=[BLUE])
    start = int(np.flatnonzero(datum.mask)[0])
    size = teacher.tokenizer.vocab_size
    question = TeacherRequest(ids=datum.tokens, start=start, k=size, pictures=datum.pictures)

    async def ask():
        async with teacher:
            return (
                await teacher.states([datum]),
                await teacher.score([question]),
                await teacher.logprobs([datum, other]),
            )

    (states,), (scored,), (logprobs, others) = run(ask())
    logits = torch.tensor(states.states) @ teacher.head.weights.T
    wanted = logits.log_softmax(-1)
    places = torch.tensor(datum.tokens[start:].astype(np.int64))[:, None]
    chosen = wanted.gather(1, places)[:, 0].numpy()
    np.testing.assert_allclose(scored.actual, chosen, atol=1e-5)
    np.testing.assert_allclose(logprobs[start:], chosen, atol=1e-5)
    assert np.abs(others - logprobs).max() > 1e-4
    assert teacher.image_processor is not None


def test_a_policy_says_whether_it_sees(make_vision, make_hf):
    """A sampler may ask; one of text alone has no image processor."""
    policy, blind = run(backend_of(make_vision("llava")).policy()), None
    assert policy.image_processor.tokens(RED.open()) == [2] * 4
    blind = run(backend_of(make_hf("llama")).policy())
    assert blind.image_processor is None


def test_text_is_sampled_as_by_any_model(make_vision):
    """Greedy tokens are those of the model's own code."""
    from rlvr import GenerateRequest, SamplingParams

    backend = backend_of(make_vision("llava"))
    prompt = backend.tokenizer.render([Message(role="user", content="the door")])
    params = SamplingParams(max_tokens=5, temperature=0.0)
    policy = run(backend.policy())
    request = GenerateRequest(prompt=prompt, params=params, seed=0)
    completion = run(policy.generate(request))
    model = read_model(str(make_vision("llava"))).eval()
    ids = torch.tensor([prompt])
    for _ in range(len(completion.tokens)):
        ids = torch.cat([ids, model(input_ids=ids).logits[:, -1:].argmax(-1)], dim=1)

    assert completion.tokens.tolist() == ids[0, len(prompt) :].tolist()


def test_tokens_that_are_not_the_pictures(make_vision, image_processor):
    """A picture whose tokens are not there is named, and weights stay as they were."""
    backend = backend_of(make_vision("llava"))
    before = weights(backend)
    text = attrs.evolve(datum_of(image_processor, "a the door is"), pictures=[RED])
    with pytest.raises(BackendError, match=r"0 of the tokens stand for pictures"):
        run(trained(backend, [text]))
    assert not changed(backend, before)


def test_pictures_for_a_model_of_text_are_refused(make_hf, image_processor):
    """Never left out in silence."""
    datum = attrs.evolve(datum_of(image_processor, "a the door is"), pictures=[RED])
    with pytest.raises(BackendError, match="reads text alone"):
        run(trained(backend_of(make_hf("llama")), [datum]))


def test_a_model_without_a_processor_reads_text(make_vision, tmp_path, image_processor):
    """It trains on text; a picture is an error that says what is missing."""
    import shutil

    where = tmp_path / "model"
    shutil.copytree(make_vision("llava"), where)
    (where / "processor_config.json").unlink()
    backend = backend_of(where)
    run(trained(backend, [datum_of(image_processor, "look, the door is")]))
    with pytest.raises(BackendError, match="processor"):
        run(trained(backend, [datum_of(image_processor, "a ", RED, " the door is")]))


def test_data_with_pictures_share_no_prompt(image_processor):
    """Equal tokens and other pictures are two sequences; each counts whole."""
    data = [datum_of(image_processor, "a ", one, " the door is") for one in (RED, BLUE, RED)]
    length = len(data[0].tokens)
    assert list(map(len, microbatches(data, 2 * length))) == [2, 1]
    text = [attrs.evolve(datum, pictures=()) for datum in data]
    assert len(microbatches(text, 2 * length)) == 1
    assert microbatches(data, length) != microbatches(text, length)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("rank", [0, 2])
def test_bfloat16_sees_nearly_the_same(make_vision, image_processor, rank):
    """Products in bfloat16, weights too beside adapters."""
    config = attrs.evolve(CPU, dtype="bfloat16", lora_rank=rank)
    datum = datum_of(image_processor, "a ", RED, " the door is")
    found = run(backend_of(make_vision("llava"), config).logprobs([datum], "policy"))
    exact = run(backend_of(make_vision("llava")).logprobs([datum], "policy"))
    np.testing.assert_allclose(found[0], exact[0], atol=0.1)


def test_a_template_of_parts_is_rendered(tmp_path):
    """Where a template takes lists of parts and leaves texts out, it gets parts."""
    processor, model = llava(tokenizer_of("<image>", template=IN_PARTS))
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    tokenizer = backend_of(tmp_path).tokenizer
    text = tokenizer.decode(tokenizer.render([Message(role="user", content="<image> red")]))

    assert text == "<user><image> red<end><assistant>"
    assert 2 not in tokenizer.render([Message(role="user", content="<image> red")])


def test_a_prefix_model_is_refused(tmp_path):
    """PaliGemma reads prompts both ways: the reason is told before weights are read."""
    transformers.PaliGemmaConfig().save_pretrained(tmp_path)
    with pytest.raises(BackendError, match="both ways"):
        load_net(str(tmp_path))
