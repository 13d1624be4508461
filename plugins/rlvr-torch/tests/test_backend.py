"""The four primitives: sampling handle, logprobs, step, save and load."""

from __future__ import annotations

import asyncio

import attrs
import numpy as np
import pytest
import torch

from rlvr import (
    Backend,
    BackendError,
    BuildContext,
    CheckpointError,
    ConfigError,
    Datum,
    GenerateRequest,
    Loss,
    Needs,
    Policy,
    SamplingParams,
)
from rlvr.testing import BackendContract
from rlvr_torch.backend import TorchBackend
from rlvr_torch.config import TorchConfig
from rlvr_torch.models.gpt2_files import save_gpt2
from rlvr_torch.training.microbatches import microbatches
from rlvr_torch.training.optimizer import OptimSettings


class WeightedLogprob(Loss):
    """-sum(weight * advantage * logprob): policy gradient at its plainest."""

    importance_weighted = False

    def __call__(self, data, logprobs, outputs):
        loss = torch.zeros(())
        for datum, values in zip(data, logprobs, strict=True):
            credit = torch.tensor(datum.weights * datum.advantages, device=values.device)
            loss = loss - (credit * values).sum()
        tokens = float(sum(datum.mask.sum() for datum in data))
        longest = max(float(datum.mask.sum()) for datum in data)
        return loss, {"tokens": tokens, "tokens/max": longest}


@pytest.fixture
def directory(model, tokenizer, tmp_path):
    """The tiny model as a directory."""
    path = tmp_path / "model"
    path.mkdir()
    save_gpt2(model, path, eos_id=tokenizer.eos_id)
    tokenizer.save(path)
    return path


@pytest.fixture
def make(directory):
    """Builds backends of the tiny model; keywords are `torch` or `train` options."""
    ours = {field.name for field in attrs.fields(TorchConfig)}

    def build(steps=0, config=None, model=None, **options):
        mine = {name: value for name, value in options.items() if name in ours}
        train = {name: value for name, value in options.items() if name not in ours}
        config = attrs.evolve(config or TorchConfig(device="cpu"), **mine)
        settings = OptimSettings(**{"lr": 1e-2, **train})
        context = BuildContext(model=model or f"gpt2:{directory}", steps=steps, train=settings)
        return TorchBackend(config, context)

    return build


@pytest.fixture
def data(make_datum):
    """Mixed lengths, prompts and temperatures."""
    return [
        make_datum(2 + i % 5, 8 + 3 * i, seed=i, temperature=1.0 if i % 2 else 0.8)
        for i in range(9)
    ]


def weights(backend):
    """A copy of all weights."""
    return {name: value.detach().clone() for name, value in backend.model.named_parameters()}


def same_weights(a, b):
    """Equal bit for bit."""
    return all(torch.equal(a[name], b[name]) for name in a)


def run(coroutine):
    """Run it in a fresh event loop."""
    return asyncio.run(coroutine)


class TestContract(BackendContract):
    """What every backend must hold, bit for bit after save and load."""

    @pytest.fixture(autouse=True)
    def _make(self, make):
        self._build = make

    def make_backend(self):
        return self._build(microbatch_tokens=20)


def test_fulfils_the_protocols(make):
    """The core can use it as a `Backend`, and its handle as a `Policy`."""
    backend = make()
    assert isinstance(backend, Backend)
    assert isinstance(run(backend.policy()), Policy)


# --- what the caller has set in PyTorch ---------------------------------------------------------


@pytest.mark.parametrize(
    "mode",
    [torch.inference_mode, torch.no_grad, lambda: torch.device("meta")],
    ids=["inference", "no_grad", "device"],
)
def test_modes_of_the_caller_change_nothing(make, data, mode):
    """A notebook's cell may stand within one: the same is learnt, bit for bit."""
    plain = make()
    run(plain.update(data, WeightedLogprob()))
    with mode():
        within = make()
        run(within.update(data, WeightedLogprob()))
        run(within.update(data, WeightedLogprob()))
    run(plain.update(data, WeightedLogprob()))

    assert same_weights(weights(within), weights(plain))


def test_another_default_type_of_the_process_is_named(make):
    """It holds in all threads; the backend would be blamed for what it breaks."""
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ConfigError, match=r"torch\.set_default_dtype\(torch\.float64\)"):
            make()
    finally:
        torch.set_default_dtype(torch.float32)


# --- sampling and training agree ------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.6])
def test_sampler_and_trainer_agree(make, tokenizer, temperature):
    """Logprobs of sampled tokens equal the trainer's within 1e-4: mixed lengths, shared prompts."""
    backend = make(microbatch_tokens=150)
    params = SamplingParams(max_tokens=50, temperature=temperature, stop=("zz",))
    prompts = ["module ", "a", "assign y = a ^ b;\n  assign"]
    requests = [
        GenerateRequest(prompt=tokenizer.encode(p), params=params, seed=s)
        for p in prompts
        for s in range(4)
    ]

    async def main():
        completions = await (await backend.policy()).generate_many(requests)
        data = [sampled(r, c) for r, c in zip(requests, completions, strict=True)]
        return data, await backend.logprobs(data, "policy")

    def sampled(request, completion):
        prompt, count = len(request.prompt), len(completion.tokens)
        mask = np.arange(prompt + count) >= prompt
        return Datum(
            tokens=np.concatenate([request.prompt, completion.tokens]),
            mask=mask,
            logprobs=np.concatenate([np.zeros(prompt), completion.logprobs]),
            advantages=np.zeros(len(mask)),
            weights=np.zeros(len(mask)),
            temperature=request.params.temperature,
        )

    data, trained = run(main())
    for datum, values in zip(data, trained, strict=True):
        assert values.shape == datum.tokens.shape
        assert values[0] == 0
        assert np.abs(values - datum.logprobs).max() < 1e-4


def test_a_stale_policy_is_refused(make, data, tokenizer):
    """After a step the old handle raises rather than sampling other weights than its own."""
    backend = make()
    request = GenerateRequest(prompt=[5], params=SamplingParams(max_tokens=2), seed=0)

    async def main():
        old = await backend.policy()
        await old.generate(request)
        await backend.update(data, WeightedLogprob())
        new = await backend.policy()
        assert (old.version, new.version) == (0, 1)
        assert old.digest != new.digest
        await new.generate(request)
        await old.generate(request)

    with pytest.raises(BackendError, match=r"version 0 is stale.*version 1"):
        run(main())


def test_a_live_policy_goes_on_over_an_update(make, data, tokenizer):
    """One completion drawn by two versions; version and digest are those of the newest weights."""
    backend, strict = make(slice_tokens=4), make()
    request = GenerateRequest(prompt=[5], params=SamplingParams(max_tokens=60), seed=0)

    async def main():
        live = await backend.live_policy()
        assert backend.capabilities.partial_rollouts
        assert (live.version, live.digest) == (0, (await strict.policy()).digest)
        sampling = asyncio.create_task(live.generate_many([request] * 8))
        for _ in range(4):  # takes turns with the slices: the first ones have been drawn then
            await backend.policy()
        await backend.update(data, WeightedLogprob())
        completions = await sampling
        await strict.update(data, WeightedLogprob())
        assert (live.version, live.digest) == (1, (await strict.policy()).digest)
        return completions

    versions = {version for completion in run(main()) for version in completion.versions}
    assert versions == {0, 1}


def test_the_canary_may_round_more_in_low_precision(make):
    """The bound goes with the type that matrix products are computed in."""
    assert make().capabilities.logprob_tolerance == 0.01
    assert make(dtype="bfloat16").capabilities.logprob_tolerance == 1.0


def test_vllm_is_refused_where_it_cannot_run(make):
    """`torch.engine=vllm` with rlvr's own GPT-2: said before anything is sampled."""
    with pytest.raises(ConfigError, match="not an hf: model"):
        make(engine="vllm")


def test_digest_names_the_weights(make, data, directory):
    """Equal weights have equal digests, and the smallest change shows."""
    backend, other = make(), make()
    assert run(backend.policy()).digest == run(other.policy()).digest
    with torch.no_grad():
        value = other.model.h[1].mlp.c_fc.weight
        value[3, 4] = torch.nextafter(value[3, 4], torch.tensor(9.0))
    other._versions.become(0, is_restored=True)
    assert run(backend.policy()).digest != run(other.policy()).digest


# --- steps ----------------------------------------------------------------------------------------


def gradient(backend, data):
    """The gradient of one step, caught before the optimiser uses it."""
    caught = {}
    plain = backend._updater._optimizer.step
    backend._updater._optimizer.step = lambda: caught.update(
        {name: value.grad.clone() for name, value in backend.model.named_parameters()}
    )
    metrics = run(backend.update(data, WeightedLogprob()))
    backend._updater._optimizer.step = plain
    return caught, metrics


def test_microbatches_add_up_exactly(make, data):
    """Accumulated over many micro-batches the gradient is that of one batch, within 1e-5."""
    whole, whole_metrics = gradient(make(microbatch_tokens=10_000, grad_clip=0.0), data)
    parts, parts_metrics = gradient(make(microbatch_tokens=40, grad_clip=0.0), data)
    largest = max(float(value.abs().max()) for value in whole.values())
    assert largest > 1e-3
    for name, value in whole.items():
        assert torch.allclose(value, parts[name], atol=1e-5), name
    assert parts_metrics["tokens"] == whole_metrics["tokens"] == sum(d.mask.sum() for d in data)
    assert parts_metrics["tokens/max"] == whole_metrics["tokens/max"]
    assert parts_metrics["loss"] == pytest.approx(whole_metrics["loss"], abs=1e-6)
    assert parts_metrics["grad/norm"] == pytest.approx(whole_metrics["grad/norm"], rel=1e-4)


def test_order_of_data_does_not_matter(make, data):
    """The same data in another order give the same weights, bit for bit."""
    first, second = make(microbatch_tokens=60), make(microbatch_tokens=60)
    run(first.update(data, WeightedLogprob()))
    run(second.update(data[::-1], WeightedLogprob()))
    assert same_weights(weights(first), weights(second))


def test_steps_make_good_tokens_likelier(make, data):
    """A few steps raise the logprob of tokens with positive advantage, and lower the others."""
    backend = make()

    async def main():
        before = await backend.logprobs(data, "policy")
        for _ in range(5):
            metrics = await backend.update(data, WeightedLogprob())
        return before, await backend.logprobs(data, "policy"), metrics

    before, after, metrics = run(main())
    gained = sum(
        float((datum.advantages * (b - a)).sum())
        for datum, a, b in zip(data, before, after, strict=True)
    )
    assert gained > 1.0
    assert {"loss", "grad/norm", "lr", "tokens"} <= set(metrics)
    assert backend.version == 5


def test_zero_advantage_moves_nothing(make, data):
    """No credit, no weight decay: the weights stay bit for bit."""
    backend = make()
    before = weights(backend)
    still = [attrs.evolve(d, advantages=np.zeros(len(d.tokens))) for d in data]
    metrics = run(backend.update(still, WeightedLogprob()))
    assert metrics["grad/norm"] == 0
    assert same_weights(before, weights(backend))


def test_the_schedule_counts_every_update(make, data):
    """Lr follows warm-up and decay over steps * passes * minibatches updates."""
    backend = make(steps=2, passes=2, lr=1.0, warmup=1, decay="linear")
    rates = [run(backend.update(data, WeightedLogprob()))["lr"] for _ in range(4)]
    assert rates == pytest.approx([1.0, 1.0, 2 / 3, 1 / 3])


class Explosive(WeightedLogprob):
    """A loss, or a gradient, that is not finite for one problem."""

    def __init__(self, where, factor):
        self.where, self.factor = where, factor

    def __call__(self, data, logprobs, outputs):
        loss, metrics = super().__call__(data, logprobs, outputs)
        for datum, values in zip(data, logprobs, strict=True):
            if datum.problem_id == self.where:
                loss = loss + self.factor(values)
        return loss, metrics


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (lambda values: values.sum() * float("nan"), "the loss is nan"),
        (lambda values: values.sum() + float("inf"), "the loss is inf"),
        (lambda values: (values.sum() * 0).abs().sqrt(), "the gradient is not finite"),
    ],
    ids=["nan loss", "infinite loss", "infinite gradient"],
)
def test_what_is_not_finite_changes_nothing(make, data, factor, message):
    """The problem is named; weights, optimiser and version are as before."""
    backend = make(microbatch_tokens=60, max_skipped=0)
    untouched = make(microbatch_tokens=60)
    before = weights(backend)
    with pytest.raises(BackendError, match=rf"{message}.*'problem-4';") as caught:
        run(backend.update(data, Explosive("problem-4", factor)))
    assert "problem-5" not in str(caught.value)
    assert same_weights(before, weights(backend))
    assert backend.version == 0
    run(backend.update(data, WeightedLogprob()))
    run(untouched.update(data, WeightedLogprob()))
    assert same_weights(weights(backend), weights(untouched))


BROKEN = Explosive("problem-4", lambda values: values.sum() * float("nan"))


def test_an_update_that_is_not_finite_is_skipped(make, data):
    """One bad update in a run is as if it had never been asked for, and is counted."""
    backend, untouched = make(), make()
    first = run(backend.update(data, WeightedLogprob()))
    assert run(backend.update(data, BROKEN)) == {"update/skipped": 1.0}
    assert backend.version == 1
    second = run(backend.update(data, WeightedLogprob()))
    assert first == run(untouched.update(data, WeightedLogprob()))
    assert second == run(untouched.update(data, WeightedLogprob()))
    assert first["update/skipped"] == second["update/skipped"] == 0.0
    assert same_weights(weights(backend), weights(untouched))


def test_a_policy_still_samples_after_a_skipped_update(make, data, tokenizer):
    """The weights are those the handle stands for, so it is not stale."""
    backend = make()

    async def main():
        policy = await backend.policy()
        await backend.update(data, BROKEN)
        params = SamplingParams(max_tokens=3)
        request = GenerateRequest(prompt=tokenizer.encode("a"), params=params, seed=1)
        return await policy.generate(request)

    assert len(run(main()).tokens) > 0


def test_too_many_skipped_updates_end_the_run(make, data):
    """Two in a row are allowed here; an update between them starts the count again."""
    backend = make(max_skipped=2)
    for loss in (BROKEN, BROKEN, WeightedLogprob(), BROKEN, BROKEN):
        run(backend.update(data, loss))
    before = weights(backend)
    with pytest.raises(BackendError, match=r"'problem-4'.*\n.*after 2 .*max_skipped=2") as caught:
        run(backend.update(data, BROKEN))
    assert caught.value.exit_code == 6
    assert same_weights(before, weights(backend))
    assert backend.version == 1


def test_unusable_data_change_nothing(make, data):
    """Bad data are refused before any of them is used."""
    backend = make()
    before = weights(backend)
    bad = attrs.evolve(data[3], advantages=np.full(len(data[3].tokens), np.nan))
    with pytest.raises(BackendError, match=r"datum 1 of 2 \(problem 'problem-3'\)"):
        run(backend.update([data[0], bad], WeightedLogprob()))
    assert same_weights(before, weights(backend))


def test_a_step_without_supervised_tokens_is_an_error(make, make_datum):
    """Never a silent step on nothing."""
    empty = make_datum(3, 8, mask=np.zeros(8, bool))
    with pytest.raises(BackendError, match="nothing to learn from"):
        run(make().update([empty], WeightedLogprob()))
    assert not run(make().logprobs([empty], "policy"))[0].any()


def test_a_cancelled_step_changes_nothing(make, data):
    """Cancelled before its update, a step leaves weights and version as they were."""
    backend = make(microbatch_tokens=20)
    before = weights(backend)

    class Slow(WeightedLogprob):
        def __call__(self, data, logprobs, outputs):
            loop.call_soon_threadsafe(began.set)
            torch.ones(400, 400).matmul(torch.ones(400, 400))
            return super().__call__(data, logprobs, outputs)

    async def main():
        nonlocal loop, began
        loop, began = asyncio.get_running_loop(), asyncio.Event()
        task = asyncio.create_task(backend.update(data, Slow()))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop, began = None, None
    run(main())
    assert backend.version == 0
    assert same_weights(before, weights(backend))


def test_cores_do_not_change_the_result(make, make_datum):
    """One thread or three: the same micro-batches, added in the same order, bit for bit."""
    data = [make_datum(3, 80 - i % 7, seed=i) for i in range(40)]
    one = make(config=TorchConfig(device="cpu", threads=1))
    three = make(config=TorchConfig(device="cpu", threads=3))

    async def main():
        for _ in range(3):
            assert await one.update(data, WeightedLogprob()) == await three.update(
                data, WeightedLogprob()
            )
        for a, b in zip(
            await one.logprobs(data, "policy"), await three.logprobs(data, "policy"), strict=True
        ):
            assert np.array_equal(a, b)

    run(main())
    assert len(microbatches(data, 1024)) == 4
    assert same_weights(weights(one), weights(three))


def test_no_more_threads_than_asked_for(make, data):
    """`torch.threads=1` holds in the thread that all work runs in, whatever torch was set to."""
    torch.set_num_threads(2)
    backend = make(config=TorchConfig(device="cpu", threads=1))

    async def main():
        await backend.logprobs(data, "policy")
        return await backend._worker.run(lambda _: torch.get_num_threads())

    assert run(main()) == 1


# --- what a loss may ask for besides --------------------------------------------------------------


class WithCritic(WeightedLogprob):
    """Policy gradient, a critic's squared error towards 0.7, and a bonus for entropy."""

    needs = Needs(outputs={"entropy", "value"})

    def __call__(self, data, logprobs, outputs):
        loss, metrics = super().__call__(data, logprobs, outputs)
        error = entropy = 0.0
        for datum, v, h in zip(data, outputs["value"], outputs["entropy"], strict=True):
            weights = torch.tensor(datum.weights)
            error = error + (weights * (v - 0.7) ** 2).sum()
            entropy = entropy + (weights * h).sum()
        return loss + error - 0.01 * entropy, {**metrics, "error": error.item()}


def test_a_critic_learns(make, data):
    """Zero at first, made when first asked for; its estimates go where the loss pulls them."""
    backend = make(critic_lr=0.05)
    before = run(backend.policy()).digest

    async def main():
        first = await backend.logprobs(data, "value")
        assert not any(values.any() for values in first)
        assert (await backend.policy()).digest == before
        metrics = [await backend.update(data, WithCritic()) for _ in range(40)]
        return metrics, await backend.logprobs(data, "value")

    metrics, after = run(main())
    assert metrics[0]["error"] == pytest.approx(0.49 * sum(d.weights.sum() for d in data))
    assert metrics[-1]["error"] < 0.1 * metrics[0]["error"]
    assert metrics[0]["grad/critic_norm"] > 0
    for datum, values in zip(data, after, strict=True):
        assert np.abs(values[datum.mask] - 0.7).mean() < 0.2
        assert not values[~datum.mask].any()


@pytest.mark.parametrize(("critic_lr", "wanted"), [(0.0, 0.1), (0.3, 0.3)])
def test_a_critic_has_a_rate_of_its_own(make, data, critic_lr, wanted):
    """Ten times the model's, or what was asked for; on the same schedule."""
    backend = make(critic_lr=critic_lr, warmup=2)
    run(backend.update(data, WithCritic()))
    assert [group["lr"] for group in backend._updater._optimizer.param_groups] == pytest.approx(
        [0.005, 0.005, wanted / 2]
    )


def test_resume_with_a_critic_is_bit_identical(make, data, tmp_path):
    """Critic, its momentum and its rate come back; also into a backend that had none."""
    straight, resumed = make(), make()

    async def main():
        for _ in range(2):
            await straight.update(data, WithCritic())
        await straight.save(tmp_path)
        await resumed.load(tmp_path)
        for a, b in zip(
            await straight.logprobs(data, "value"),
            await resumed.logprobs(data, "value"),
            strict=True,
        ):
            assert np.array_equal(a, b)
            assert a.any()
        assert await straight.update(data, WithCritic()) == await resumed.update(data, WithCritic())

    run(main())
    assert same_weights(weights(straight), weights(resumed))
    assert torch.equal(straight._updater.critic.weight, resumed._updater.critic.weight)


def test_a_state_without_a_critic_leaves_none(make, data, tmp_path):
    """What was made since is gone: the run goes on as the one that was saved."""
    backend = make()
    run(backend.save(tmp_path))
    run(backend.update(data, WithCritic()))
    run(backend.load(tmp_path))
    assert backend._updater.critic is None
    assert len(backend._updater._optimizer.param_groups) == 2
    run(backend.update(data, WithCritic()))


def test_unknown_outputs_change_nothing(make, data):
    """The step is refused before anything is computed."""

    class Curious(WeightedLogprob):
        needs = Needs(outputs={"weather"})

    backend = make()
    with pytest.raises(BackendError, match="'weather'"):
        run(backend.update(data, Curious()))
    assert backend.version == 0


# --- save, load, reference ------------------------------------------------------------------------


def test_resume_is_bit_identical(make, data, tmp_path):
    """Saved and loaded after two steps, the next two are those of the uninterrupted run."""
    options = {"steps": 4, "warmup": 1, "decay": "cosine", "weight_decay": 0.1}
    straight, first = make(**options), make(**options)
    resumed = make(**options)
    loss = WeightedLogprob()

    async def main():
        wanted = [await straight.update(data, loss) for _ in range(4)]
        found = [await first.update(data, loss) for _ in range(2)]
        await first.save(tmp_path)
        await resumed.load(tmp_path)
        assert resumed.version == 2
        assert (await resumed.policy()).digest == (await first.policy()).digest
        found += [await resumed.update(data, loss) for _ in range(2)]
        assert wanted == found

    run(main())
    assert same_weights(weights(straight), weights(resumed))


def test_a_saved_state_is_a_model(make, data, tmp_path):
    """`gpt2:DIR` of a checkpoint starts a run from its weights."""
    backend = make()
    run(backend.update(data, WeightedLogprob()))
    run(backend.save(tmp_path))
    fresh = make(model=f"gpt2:{tmp_path}")
    assert same_weights(weights(backend), weights(fresh))
    assert fresh.version == 0


@pytest.mark.parametrize("spec", [None, "gpt2:new?width=32&positions=96&seed=3"])
def test_reference_is_the_start_whenever_it_is_asked_for(make, make_datum, spec, tmp_path):
    """Reference logprobs are those before the first step: asked late, and after a resume, too."""
    data = [make_datum(3, 20, seed=i, tokens=np.arange(20) + i) for i in range(3)]
    backend, resumed = make(model=spec), make(model=spec)

    async def main():
        start = await backend.logprobs(data, "policy")
        await backend.update(data, WeightedLogprob())
        late = await backend.logprobs(data, "reference")
        await backend.save(tmp_path)
        await resumed.load(tmp_path)
        after = await resumed.logprobs(data, "reference")
        moved = await resumed.logprobs(data, "policy")
        return start, late, after, moved

    start, late, after, moved = run(main())
    for a, b, c, d in zip(start, late, after, moved, strict=True):
        assert np.array_equal(a, b)
        assert np.array_equal(a, c)
        assert np.abs(a - d).max() > 1e-3


def test_start_weights_that_changed_on_disk_are_noticed(make, data, directory, model):
    """A reference that is not the start any more is refused, not used."""
    backend = make()
    with torch.no_grad():
        model.head[0] += 1
    save_gpt2(model, directory)
    with pytest.raises(BackendError, match="changed since the run started"):
        run(backend.logprobs(data, "reference"))


def test_a_state_of_another_run_is_refused(make, data, tmp_path):
    """A checkpoint goes with the model its run started from."""
    run(make(model="gpt2:new?width=32&seed=1").save(tmp_path))
    with pytest.raises(BackendError, match="other start weights"):
        run(make(model="gpt2:new?width=32&seed=2").load(tmp_path))
    with pytest.raises(BackendError, match="other start weights"):
        run(make(model="gpt2:new?width=64&seed=1").load(tmp_path))


@pytest.mark.parametrize("name", ["training.pt", "model.safetensors"])
def test_a_damaged_state_changes_nothing(make, data, tmp_path, name):
    """A truncated file is a `CheckpointError` and leaves the backend as it was."""
    backend = make()
    run(backend.save(tmp_path))
    run(backend.update(data, WeightedLogprob()))
    before = weights(backend)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CheckpointError, match="cannot read the state"):
        run(backend.load(tmp_path))
    assert same_weights(before, weights(backend))
    assert backend.version == 1


@pytest.mark.parametrize("name", ["training.pt", "model.safetensors", "config.json"])
def test_a_state_that_cannot_be_written_is_a_checkpoint_error(make, tmp_path, name):
    """Whichever file fails, the error says so (here: a folder is in its place)."""
    (tmp_path / name).mkdir()
    with pytest.raises(CheckpointError, match="cannot write"):
        run(make().save(tmp_path))


def test_unknown_logprobs_are_refused(make, data):
    """This backend has no teacher."""
    with pytest.raises(BackendError, match="no 'teacher' logprobs"):
        run(make().logprobs(data, "teacher"))


# --- precision and devices ------------------------------------------------------------------------


def test_bfloat16_stays_near_float32(make, data):
    """bfloat16 products with float32 weights, head and logprobs: close, and it can be trained."""
    exact = make()
    rough = make(config=TorchConfig(device="cpu", dtype="bfloat16"))
    request = GenerateRequest(prompt=[5], params=SamplingParams(max_tokens=20), seed=0)

    async def main():
        pairs = zip(
            await exact.logprobs(data, "policy"),
            await rough.logprobs(data, "policy"),
            strict=True,
        )
        differences = [np.abs(a - b).max() for a, b in pairs]
        completion = await (await rough.policy()).generate(request)
        await rough.update(data, WeightedLogprob())
        return max(differences), completion

    difference, completion = run(main())
    assert 0 < difference < 0.3
    assert np.isfinite(completion.logprobs).all()
    assert rough.model.head.dtype == torch.float32


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
def test_cuda_agrees_with_the_cpu(make, data):
    """The GPU computes the CPU's logprobs within 1e-3, and steps."""
    cpu, gpu = make(), make(config=TorchConfig(device="cuda"))

    async def main():
        for a, b in zip(
            await cpu.logprobs(data, "policy"), await gpu.logprobs(data, "policy"), strict=True
        ):
            assert np.abs(a - b).max() < 1e-3
        await gpu.update(data, WeightedLogprob())

    run(main())
