"""The real SDK against a real server in a process of its own."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import pytest
import tinker
from server_process import Running
from tinker import types
from tinker.types import AdamParams, SamplingParams

pytestmark = pytest.mark.integration

TOKENS = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38]


@pytest.fixture(scope="module")
def service(server: Running) -> Iterator[tinker.ServiceClient]:
    """One session for the file."""
    client = tinker.ServiceClient(base_url=server.url, api_key="tml-local")
    yield client
    client.close("success").result()


@pytest.fixture
def make_client(service):
    """A model in training; equal seeds make equal ones."""

    def make(seed=0, rank=4, **flags):
        asked = {"rank": rank, "seed": seed, **flags}
        return service.create_lora_training_client("gpt2-new", **asked).result()

    return make


def datum(tokens=TOKENS, **inputs):
    """For cross-entropy, or with the tensors of another loss."""
    count = len(tokens) - 1
    return types.Datum(
        model_input=types.ModelInput.from_ints(list(tokens[:-1])),
        loss_fn_inputs={
            "target_tokens": list(tokens[1:]),
            **(inputs or {"weights": [1.0] * count}),
        },
    )


def train(client, *data, lr=0.05, loss="cross_entropy", config=None):
    """A step as the SDK wants it: both requests sent, then both waited for."""
    passed = client.forward_backward(list(data), loss, config)
    step = client.optim_step(AdamParams(learning_rate=lr))
    return passed.result(60), step.result(60)


def logprobs(client, *data):
    """By the trainer."""
    found = client.forward(list(data), "cross_entropy").result(60)
    return [out["logprobs"].to_numpy() for out in found.loss_fn_outputs]


def draw(sampler, count=4, prompt=TOKENS[:4], **params):
    """Sequences of a sampler, as lists."""
    asked = SamplingParams(**{"max_tokens": 12, "seed": 1, **params})
    found = sampler.sample(types.ModelInput.from_ints(list(prompt)), count, asked).result(60)
    return [one.tokens for one in found.sequences]


def test_the_server_says_what_it_serves(server, service, make_client):
    """Capabilities, health and the model's own description fit together."""
    (model,) = tinker.RestClient().get_server_capabilities().result().supported_models
    assert (model.model_name, model.max_context_length) == (server.name, 48)
    assert model.trainable
    assert model.sampleable
    info = make_client(rank=5).get_info()
    assert (info.lora_rank, info.model_data.model_name) == (5, server.name)
    assert info.model_data.tokenizer_id == server.tokenizer


def test_training_lowers_the_loss(make_client):
    """Five steps on one sequence: the loss falls; metrics are there."""
    client = make_client()
    found = [train(client, datum()) for _ in range(5)]
    values = [passed.metrics["loss:sum"] for passed, _ in found]
    assert values[-1] < 0.8 * values[0]
    (out,) = found[0][0].loss_fn_outputs
    assert values[0] == pytest.approx(-float(out["logprobs"].to_numpy().sum()), abs=1e-4)
    assert found[-1][1].metrics["steps"] == 5
    assert found[-1][1].metrics["grad_norm"] > 0


def test_sampler_and_trainer_agree(make_client):
    """Logprobs of sampled tokens, prompt logprobs and the trainer's are the same numbers."""
    client = make_client()
    train(client, datum())
    sampler = client.save_weights_and_get_sampling_client().result()
    prompt = types.ModelInput.from_ints(TOKENS[:4])
    (one,) = sampler.sample(prompt, 1, SamplingParams(max_tokens=9, seed=5)).result(60).sequences
    whole = [*TOKENS[:4], *one.tokens]

    (trainer,) = logprobs(client, datum(whole))
    scored = sampler.compute_logprobs(types.ModelInput.from_ints(whole)).result(60)

    assert np.allclose(trainer[3:], one.logprobs_np, atol=2e-5)
    assert scored[0] is None
    assert np.allclose(np.array(scored[1:], np.float32), trainer, atol=2e-5)


def test_samplers_are_snapshots(make_client):
    """Later steps change neither an unnamed nor a named sampler; a new one has them."""
    client = make_client()
    unnamed = client.save_weights_and_get_sampling_client().result()
    path = client.save_weights_for_sampler("start").result().path
    before, before_logprobs = draw(unnamed), logprobs(client, datum())
    for _ in range(3):
        train(client, datum())

    named = client.create_sampling_client(path).result()

    assert draw(unnamed) == draw(named) == before
    newest = client.save_weights_and_get_sampling_client().result()
    for sampler, same in ((unnamed, True), (named, True), (newest, False)):
        found = sampler.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result(60)[1:]
        assert np.allclose(np.array(found), before_logprobs[0], atol=1e-4) == same


def test_an_inflight_sampler_follows(make_client):
    """The kind that is meant to change: all of a model's share its newest published weights."""
    client = make_client()
    first = client.save_weights_and_get_sampling_client(kind="inflight").result()
    before = first.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result(60)[1:]
    train(client, datum())
    assert first.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result(60)[1:] == before
    client.save_weights_and_get_sampling_client(kind="inflight").result()
    after = first.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result(60)[1:]
    assert np.allclose(np.array(after), logprobs(client, datum())[0], atol=2e-5)
    assert not np.allclose(np.array(after), np.array(before), atol=1e-3)


def test_resuming_is_exact(service, make_client):
    """A saved state goes on bit for bit; without its optimiser it does not."""
    client = make_client()
    for _ in range(2):
        train(client, datum())
    path = client.save_state("two").result().path
    again = service.create_training_client_from_state_with_optimizer(path).result()
    fresh = service.create_training_client_from_state(path).result()
    assert np.array_equal(logprobs(client, datum()), logprobs(again, datum()))

    for one in (client, again, fresh):
        train(one, datum())

    assert np.array_equal(logprobs(client, datum()), logprobs(again, datum()))
    assert not np.array_equal(logprobs(client, datum()), logprobs(fresh, datum()))
    with pytest.raises(tinker.RequestFailedError, match="exists already"):
        client.save_state("two").result()


def test_adapters_are_independent(make_client):
    """Training one does not touch another, nor the base; equal seeds begin equal."""
    one, two = make_client(seed=3), make_client(seed=3)
    other = make_client(seed=4)
    for client in (one, other):
        train(client, datum())
    assert not np.array_equal(logprobs(one, datum()), logprobs(two, datum()))
    assert not np.array_equal(logprobs(one, datum()), logprobs(other, datum()))
    train(two, datum())
    assert np.array_equal(logprobs(one, datum()), logprobs(two, datum()))


def test_a_custom_loss_is_the_builtin_one(make_client):
    """forward_backward_custom with the formula of a built-in loss trains the same weights."""
    builtin, custom = make_client(), make_client()
    inputs = {"logprobs": [-4.0] * 9, "advantages": [0.5, -1.0, 0, 2, 0, 0, 1, -1, 0.25]}
    data = [datum(**inputs), datum(TOKENS[::-1], **inputs)]

    def loss(rows, all_logprobs):
        total = 0.0
        for row, p in zip(rows, all_logprobs, strict=True):
            q, a = (row.loss_fn_inputs[name].to_torch() for name in ("logprobs", "advantages"))
            total = total - ((p - q).exp() * a).sum()
        return total, {"mine": 1.0}

    passed, _ = train(builtin, *data, loss="importance_sampling")
    found = custom.forward_backward_custom(data, loss)
    custom.optim_step(AdamParams(learning_rate=0.05)).result(60)

    assert found.result(60).metrics["loss:sum"] == pytest.approx(
        passed.metrics["loss:sum"], rel=1e-4
    )
    assert np.allclose(logprobs(builtin, datum()), logprobs(custom, datum()), atol=1e-4)


def test_sampling_is_a_function_of_its_seed(make_client):
    """Equal requests give equal tokens, alone or in company; each sequence draws its own."""
    sampler = make_client().save_weights_and_get_sampling_client().result()
    alone = draw(sampler, seed=11)
    asked = SamplingParams(max_tokens=12, seed=11)
    company = [
        sampler.sample(types.ModelInput.from_ints(TOKENS[:n]), 3, SamplingParams(max_tokens=20))
        for n in (2, 5, 7)
    ]
    again = sampler.sample(types.ModelInput.from_ints(TOKENS[:4]), 4, asked)
    assert [one.tokens for one in again.result(60).sequences] == alone
    assert len({tuple(one) for one in alone}) == 4
    assert draw(sampler, seed=12) != alone
    assert draw(sampler, 2, seed=11) == alone[:2]
    assert all(len(future.result(60).sequences) == 3 for future in company)
    copy = pickle.loads(pickle.dumps(sampler))
    assert draw(copy, seed=11) == alone


def test_stopping(make_client):
    """Named tokens end a sequence, as its last token; [] stops nowhere; greedy has no chance."""
    sampler = make_client().save_weights_and_get_sampling_client().result()
    (free,) = draw(sampler, 1, temperature=0.0, stop=[])
    assert len(free) == 12
    assert draw(sampler, 1, temperature=0.0, stop=[], seed=9) == [free]
    stop = free[5]
    found = sampler.sample(
        types.ModelInput.from_ints(TOKENS[:4]),
        1,
        SamplingParams(max_tokens=12, temperature=0.0, stop=[stop]),
    ).result(60)
    (one,) = found.sequences
    assert one.stop_reason == "stop"
    assert one.tokens == free[: free.index(stop) + 1]


def test_scores_of_a_prompt(make_client):
    """Top-k, chosen and drawn tokens at each position are those of the whole distribution."""
    client = make_client()
    train(client, datum())
    sampler = client.save_weights_and_get_sampling_client().result()
    vocab = 257
    everything = np.tile(np.arange(vocab), (len(TOKENS) - 1, 1))
    found = sampler.sample(
        types.ModelInput.from_ints(TOKENS),
        1,
        SamplingParams(max_tokens=3, seed=0),
        include_prompt_logprobs=True,
        topk_prompt_logprobs=5,
        topk_sample_logprobs=2,
        target_prompt_logprobs=types.TensorData.from_numpy(everything),
        prompt_alt_tokens_k=3,
    ).result(60)

    table = found.target_prompt_logprobs.to_numpy()  # (9, V): the whole distribution
    assert np.allclose(np.exp(table.astype(np.float64)).sum(axis=1), 1, atol=1e-5)
    (trainer,) = logprobs(client, datum())
    for i, token in enumerate(TOKENS[1:]):
        assert table[i, token] == pytest.approx(trainer[i], abs=2e-5)
        assert found.prompt_logprobs[i + 1] == pytest.approx(table[i, token], abs=1e-6)
        best = np.argsort(-table[i])[:5]
        assert [one for one, _ in found.topk_prompt_logprobs[i + 1]] == best.tolist()
        others = found.prompt_alt_tokens.tokens.to_numpy()[i]
        given = found.prompt_alt_tokens.logprobs.to_numpy()[i]
        assert np.allclose(given, table[i, others], atol=1e-5)
    assert found.topk_prompt_logprobs[0] is None
    (one,) = found.sequences
    for token, value, row in zip(one.tokens, one.logprobs, one.topk_logprobs, strict=True):
        assert value <= row[0][1] + 1e-5
        assert all(value == pytest.approx(best, abs=1e-4) for i, best in row if i == token)


def test_scores_of_chosen_places(make_client):
    """Sparse tables are answered sparse; -1 asks nothing; last_n leaves the rest out."""
    sampler = make_client().save_weights_and_get_sampling_client().result()
    prompt, params = types.ModelInput.from_ints(TOKENS), SamplingParams(max_tokens=1)
    whole = sampler.compute_logprobs(prompt).result(60)
    target = types.TensorData(
        data=[TOKENS[3], TOKENS[9], 7],
        dtype="int64",
        shape=[9, 2],
        sparse_crow_indices=[0, 0, 0, 1, 1, 1, 1, 1, 1, 3],
        sparse_col_indices=[1, 0, 1],
    )
    sparse = sampler.sample(prompt, 1, params, target_prompt_logprobs=target).result(60)
    found = sparse.target_prompt_logprobs
    assert found.sparse_col_indices == [1, 0, 1]
    assert found.data[:2] == pytest.approx([whole[3], whole[9]], abs=1e-5)

    dense = np.full((9, 1), -1)
    dense[4, 0] = TOKENS[5]
    given = sampler.sample(
        prompt, 1, params, target_prompt_logprobs=types.TensorData.from_numpy(dense)
    ).result(60)
    values = given.target_prompt_logprobs.to_numpy()[:, 0]
    assert values[4] == pytest.approx(whole[5], abs=1e-5)
    assert np.count_nonzero(values) == 1

    last = sampler.compute_logprobs(prompt, prompt_logprobs_last_n=3).result(60)
    assert last[:7] == [None] * 7
    assert last[7:] == pytest.approx(whole[7:], abs=1e-5)


def test_many_data_come_back_in_order(make_client):
    """More than the SDK sends at once: chunks arrive in any order and the loss is their sum."""
    client = make_client()
    data = [datum([*TOKENS[i % 5 :], i % 250]) for i in range(1100)]

    found = client.forward(data, "cross_entropy").result(120)

    assert len(found.loss_fn_outputs) == 1100
    ours = [out["logprobs"].to_numpy() for out in found.loss_fn_outputs]
    assert found.metrics["loss:sum"] == pytest.approx(-sum(map(np.sum, ours)), rel=1e-5)
    for i in (0, 3, 777, 1023, 1024, 1099):
        (alone,) = logprobs(client, data[i])
        assert np.allclose(ours[i], alone, atol=2e-5)


GOOD = {
    "ppo": {"logprobs": [-1.0] * 9, "advantages": [1.0] * 9},
    "cross_entropy": {"weights": [1.0] * 9},
    "stable_reinforce": {},
}


@pytest.mark.parametrize(
    ("inputs", "loss", "reason"),
    [
        ({"logprobs": [-1.0] * 9, "advantages": [float("nan")] * 9}, "ppo", "not finite"),
        ({"logprobs": [-1.0] * 9}, "ppo", "lacks advantages"),
        ({"weights": [1.0] * 8}, "cross_entropy", "has the shape"),
        ({}, "stable_reinforce", "no loss 'stable_reinforce' here"),
    ],
)
def test_data_that_cannot_be_trained_on(make_client, inputs, loss, reason):
    """They fail at once with the reason, and no step is made of what was collected before."""
    client = make_client()
    before = logprobs(client, datum())
    client.forward_backward([datum()], "cross_entropy").result(60)
    passed = client.forward_backward([datum(**GOOD[loss]), datum(**inputs)], loss)
    step = client.optim_step(AdamParams(learning_rate=0.1))

    with pytest.raises(tinker.RequestFailedError, match=reason):
        passed.result(60)
    with pytest.raises(tinker.RequestFailedError, match="its gradients are incomplete"):
        step.result(60)
    assert np.array_equal(logprobs(client, datum()), before)
    train(client, datum())
    assert not np.array_equal(logprobs(client, datum()), before)


def test_ids_and_lengths_that_the_model_does_not_have(service, make_client):
    """Unknown tokens and contexts that are too long are refused, in training and sampling."""
    client = make_client()
    for tokens, reason in (([1, 999, 2], "holds ids 1..999"), ([1] * 60, "reads 1..48")):
        with pytest.raises(tinker.RequestFailedError, match=reason):
            client.forward([datum(tokens)], "cross_entropy").result(60)
    sampler = service.create_sampling_client(base_model="gpt2-new").result()
    for prompt, params, reason in (
        ([1] * 40, {"max_tokens": 9}, "the model has 48 positions"),
        ([1] * 49, {"max_tokens": 1}, "the model has 48 positions"),
        ([300], {"max_tokens": 1}, "the prompt holds ids"),
        ([1], {"max_tokens": 1, "temperature": -1.0}, "temperature=-1.0"),
        ([1], {"max_tokens": 1, "top_p": 0.0}, "top_p=0.0"),
        ([1], {"max_tokens": 1, "stop": [""]}, "an empty text"),
        ([], {"max_tokens": 1}, "the prompt is empty"),
    ):
        asked = SamplingParams(**params)
        with pytest.raises(tinker.RequestFailedError, match=reason):
            sampler.sample(types.ModelInput.from_ints(prompt), 1, asked).result(60)
    full = sampler.compute_logprobs(types.ModelInput.from_ints([1] * 48)).result(60)
    assert len(full) == 48


def test_models_that_the_server_does_not_have(service):
    """Another base model, a rank out of range, a checkpoint of nobody: refused by name."""
    for ask, reason in (
        (
            lambda: service.create_lora_training_client("Qwen/Qwen3-8B"),
            "no base model 'Qwen/Qwen3-8B' on this server; there is: gpt2-new",
        ),
        (lambda: service.create_lora_training_client("gpt2-new", rank=4096), "rank 4096"),
        (lambda: service.create_sampling_client(base_model="other"), "no base model 'other'"),
        (
            lambda: service.create_sampling_client(model_path="tinker://x/weights/y"),
            "no checkpoint tinker://x/weights/y",
        ),
        (
            lambda: service.create_training_client_from_state("tinker://x/weights/y"),
            "no checkpoint tinker://x/weights/y",
        ),
    ):
        with pytest.raises(tinker.APIStatusError, match=reason):
            ask().result(60)


def test_the_tokenizer_is_the_models(make_client):
    """A client's transformers reads the exported tokenizer: bytes and the end of a text."""
    tokenizer = make_client().get_tokenizer()
    ids = tokenizer.encode("a é\n", add_special_tokens=False)
    assert len(ids) == 5
    assert tokenizer.decode(ids) == "a é\n"
    assert tokenizer.eos_token == "<|endoftext|>"


def test_looking_around(service, make_client):
    """Checkpoints are listed with their run, told about, given a time to live, and deleted."""
    rest = tinker.RestClient()
    client = make_client(rank=2, train_mlp=False)
    path = client.save_state("mine", ttl_seconds=7200).result().path
    run = path.split("/")[2]
    (one,) = rest.list_checkpoints(run).result().checkpoints
    assert (one.tinker_path, one.checkpoint_type) == (path, "training")
    assert 7100 < (one.expires_at - one.time).total_seconds() < 7300
    about = rest.get_weights_info_by_tinker_path(path).result()
    assert (about.lora_rank, about.train_mlp, about.train_attn) == (2, False, True)
    rest.set_checkpoint_ttl_from_tinker_path(path, None).result()
    assert rest.list_checkpoints(run).result().checkpoints[0].expires_at is None
    assert rest.get_training_run(run).result().lora_rank == 2
    rest.delete_checkpoint_from_tinker_path(path).result()
    assert rest.list_checkpoints(run).result().checkpoints == []


def test_an_ended_session_is_over(server):
    """Closing frees the adapters; what belonged to the session is refused."""
    client = tinker.ServiceClient(base_url=server.url, api_key="tml-local")
    model = client.create_lora_training_client("gpt2-new", rank=2).result()
    other = tinker.ServiceClient(base_url=server.url, api_key="tml-local")
    client.close("success").result()
    again = other.create_sampling_client(base_model="gpt2-new").result()
    assert len(draw(again, 1)[0]) >= 1
    with pytest.raises(RuntimeError, match="closed"):
        model.forward([datum()], "cross_entropy").result(60)
    other.close("success").result()


@pytest.mark.filterwarnings("ignore:DEPRECATED")
@pytest.mark.parametrize(
    "refused",
    [
        lambda client: client.save_state("step 5"),
        lambda client: client.save_weights_for_sampler("a/b"),
        lambda client: client.load_state("tinker://nobody/weights/x"),
        lambda client: client.optim_step(AdamParams(learning_rate=float("nan"))),
        lambda client: client.optim_step(AdamParams(learning_rate=0.1, beta1=float("inf"))),
    ],
    ids=["state", "sampler", "load", "nan", "inf"],
)
def test_the_sdk_goes_on_after_a_refusal(make_client, server, service, refused):
    """It is told what was wrong, and no request waits for the one that was refused."""
    client = make_client()
    with pytest.raises(
        Exception,
        match=r"cannot be called|no checkpoint|finite|learning_rate|beta",
    ):
        refused(client).result(60)
    train(client, datum())
    assert client.save_state("after").result(60).path.endswith("/after")
