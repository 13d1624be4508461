"""Compiled layers, head and loss give what plain ones give; a run compiles them a few times."""

from __future__ import annotations

import asyncio
import errno
import functools
import gc
import importlib
import os
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest
import structlog
import torch
import transformers
from attrs import evolve
from rlvr_process import run_rlvr

from rlvr import BuildContext, Loss, Needs, PrerequisiteError, compilable, compiling
from rlvr.testing.backend import LikelihoodLoss
from rlvr_torch.backend import TorchBackend
from rlvr_torch.config import TorchConfig
from rlvr_torch.models.hf import load
from rlvr_torch.models.hf.load import load_net
from rlvr_torch.models.hf.net import HFNet
from rlvr_torch.models.weight_storage import CopiedWeights
from rlvr_torch.training.accumulate import Learner
from rlvr_torch.training.activation_checkpointing import checkpoint_layers
from rlvr_torch.training.fused_loss import head_pass
from rlvr_torch.training.optimizer import OptimSettings
from rlvr_torch.training.packing.packed_attention import PackedAttention
from rlvr_torch.training.softmax import softmax_of

# PyTorch's compiler hides warnings of its own, which pytest turns into errors before.
pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning:torch.*", "ignore:The .grad attribute", "ignore:Guards may run slower"
)


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled():
    """Our module, when it is used: PyTorch's compiler takes seconds to import."""
    return importlib.import_module("rlvr_torch.training.compiled")


def counting(backend):
    """A backend that counts what it compiles."""
    from torch._dynamo.testing import CompileCounterWithBackend

    return CompileCounterWithBackend(backend)


def steps_of(make_datum, count):
    """Micro-batches of other lengths each, some with a shared prompt."""
    for i in range(count):
        first = make_datum(10, 22 + 3 * i, i)
        other = make_datum(10, 20 + i, 90 + i)
        shared = make_datum(10, 20 + i, 90, tokens=[*first.tokens[:10], *other.tokens[10:]])
        yield [first, shared if i % 2 else other, make_datum(4, 9 + i, 50 + i)]


def compare(net, data, attention=None):
    """Loss and gradients of a micro-batch, compiled and plain, within float32's rounding."""
    found, mine = Learner(net=net, attention=compiled().outside(attention)).gradients(
        data, LikelihoodLoss()
    )
    wanted, theirs = Learner(net=net).gradients(data, LikelihoodLoss())
    assert found.loss == pytest.approx(wanted.loss, rel=1e-4)
    for one, other in zip(mine, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert (one - other).abs().max() <= 1e-4 * max(1.0, float(other.abs().max()))


@pytest.mark.one_of(4)
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("family", "is_checkpointed", "backend"),
    [
        ("own", True, "eager"),
        ("own", False, "aot_eager"),
        ("llama", True, "eager"),
        ("gemma2", False, "eager"),
    ],
)
def test_a_run_compiles_a_few_times_and_then_never(
    family, is_checkpointed, backend, make_hf, model, make_datum
):
    """Six micro-batches of six lengths: nothing is compiled after the third; results are equal."""
    net = model if family == "own" else load_net(str(make_hf(family)))
    counter = counting(backend)
    compiled().compile_layers(net, counter)
    if is_checkpointed:
        checkpoint_layers(net)
    for number, data in enumerate(steps_of(make_datum, 6)):
        compare(net, data, PackedAttention if number % 2 else None)
        if number == 2:
            early = counter.frame_count
    assert 0 < early <= 8 * len({heads.window for heads in net.heads})
    assert counter.frame_count == early


def deep(family):
    """A model of ten layers, more than PyTorch compiles one function for."""
    shape = {"vocab_size": 280, "max_position_embeddings": 96, "num_hidden_layers": 10}
    shape |= {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    if family == "gpt2":
        shape = {"vocab_size": 280, "n_positions": 96, "n_layer": 10, "n_embd": 16, "n_head": 2}
        shape |= {"bos_token_id": 0, "eos_token_id": 0}
    family, *kinds = family.split()
    if family == "qwen3_5_text":  # seven of ten keep a state, or all
        shape |= {"layer_types": ["linear_attention"] * 10} if kinds else {}
        shape |= {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "head_dim": 8}
        shape |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8, "num_key_value_heads": 1}
    config = transformers.AutoConfig.for_model(family, **shape)
    return HFNet(transformers.AutoModelForCausalLM.from_config(config))


@pytest.mark.one_of(4, "linear")
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        ("gpt2", torch.bfloat16),
        ("llama", torch.bfloat16),
        ("qwen3_5_text", torch.float32),
        ("qwen3_5_text linear", torch.float32),
    ],
    ids=str,
)
def test_many_layers_share_what_is_compiled(family, dtype, make_datum, caplog):
    """Ten layers need no more than one; copies of weights and a second model change nothing."""
    net = deep(family)
    storage, counter = CopiedWeights(net, dtype), counting("eager")
    compiled().compile_layers(net, counter)
    counts = []
    for number, data in enumerate(steps_of(make_datum, 3)):
        data = [evolve(d, tokens=d.tokens % 280) for d in data]
        learner = Learner(net=net, dtype=dtype, attention=compiled().outside(), storage=storage)
        found, _ = learner.gradients(data, LikelihoodLoss())
        wanted, _ = evolve(learner, attention=None).gradients(data, LikelihoodLoss())
        assert found.loss == pytest.approx(wanted.loss, rel=1e-4)
        counts.append(counter.frame_count)
        if number == 1:
            deep(family)
    assert 0 < counts[-1] <= 8
    assert len(set(counts[1:])) == 1
    assert "recompile_limit" not in caplog.text


def states_of(data, width=32):
    """Random hidden states of the data's supervised tokens."""
    count = sum(int(datum.mask.sum()) for datum in data)
    return torch.randn(
        count, width, generator=torch.Generator().manual_seed(count)
    ).requires_grad_()


def passed(net, data, loss, compiler=None, chunk=16):
    """Loss, metrics and gradients of one pass through head and loss."""
    found = head_pass(states_of(data), data, loss, net, chunk=chunk, compiler=compiler)
    return found.loss, found.metrics, [pull for _, pull in found.pulls]


def flat(data, rows):
    """The supervised entries of the rows and the data's weights, as tensors."""
    own = torch.cat([row[torch.tensor(d.mask)] for d, row in zip(data, rows, strict=True)])
    return own, torch.cat([torch.tensor(d.weights)[torch.tensor(d.mask)] for d in data])


class MarkedLoss(Loss):
    """Curved in logprobs and entropies, in a function that is compiled; `more` may spoil that."""

    needs = Needs(outputs={"entropy"})

    def __init__(self, more=None, scale=1.0):
        self._more, self._scale = more or (lambda values: values), scale

    def __call__(self, data, logprobs, outputs):
        own, weights = flat(data, logprobs)
        entropy, _ = flat(data, outputs["entropy"])
        scale = torch.tensor(self._scale)
        loss, told = self._curved(own, entropy, weights, scale)
        return loss, {"told": told.item()}

    @compilable
    def _curved(self, own, entropy, weights, scale):
        values = self._more(own + 0.1 * own.square() + 0.2 * entropy.square())
        return scale * (weights * values).sum(), (weights * own).sum().detach()


class PlainLoss(Loss):
    """Marks nothing, and asks for no entropies."""

    def __call__(self, data, logprobs, outputs):
        own, weights = flat(data, logprobs)
        return (weights * own.exp()).sum(), {}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("make", [MarkedLoss, PlainLoss])
def test_head_and_loss_are_compiled_once_for_all_lengths(make, model, make_datum):
    """Micro-batches of 1 to 60 rows, longer than a chunk or not: one set of code; equal results."""
    counter = counting("eager")
    compiler, counts = compiled().FunctionCompiler(counter), []
    lengths = [(14, 12), (26,), (50, 9), (5,), (6, 5, 7, 8), (21, 70), (6,)]
    for number, some in enumerate(lengths):  # 21 - 4: a chunk of 16 and one row
        data = [make_datum(4, n, 9 * number + i, temperature=1 + i) for i, n in enumerate(some)]
        loss = make(scale=1.0 + number) if make is MarkedLoss else make()
        found, wanted = passed(model, data, loss, compiler), passed(model, data, loss)
        assert found[0] == pytest.approx(wanted[0], rel=1e-4)
        assert found[1] == pytest.approx(wanted[1], rel=1e-4)
        for one, other in zip(found[2], wanted[2], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
        counts.append(counter.frame_count)
    assert counts == [3 if make is MarkedLoss else 2] * len(lengths)
    appraised = head_pass(states_of(data), data, loss, model, compiler=compiler, with_grad=False)
    assert appraised.loss == pytest.approx(wanted[0], rel=1e-4)
    assert counter.frame_count == counts[0]  # a loss without gradients is not compiled again


def _per_length(values):
    total = values[0]
    for value in values[1:]:
        total = total + value
    return values * total


SPOILERS = {
    "item": lambda values: values * min(1.0, values[0].item()),
    "branch": lambda values: values if values.sum() > 0 else -values,
    "print": lambda values: print(values.shape) or values,
    "nonzero": lambda values: values * len(values[values > 0.5]),
    "numpy": lambda values: values * float(values.detach().numpy().max()),
    "list": lambda values: values * torch.tensor(values.tolist()).mean(),
    "raises inside": lambda values: _tried(values),
    "loop over tokens": _per_length,
    "random": lambda values: values * torch.rand(len(values)),
    "random by NumPy": lambda values: values * torch.from_numpy(np.random.rand(len(values))),
    "generator": lambda values: values * torch.rand(1, generator=torch.Generator().manual_seed(3)),
}


def _tried(values):
    try:
        return values.view(-1, 997)[:, 0]
    except RuntimeError:
        return 2 * values


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("spoiler", SPOILERS)
def test_a_loss_that_cannot_be_compiled_runs_as_it_is(spoiler, make_datum):
    """What stops or misleads the compiler in a stranger's loss changes no number, ends no run."""
    loss = MarkedLoss(SPOILERS[spoiler])
    compiler = compiled().FunctionCompiler(counting("eager"))

    def called(data, compiler=None):
        torch.manual_seed(len(data[0].tokens))
        np.random.seed(len(data[0].tokens))
        leaves = [torch.rand(len(d.tokens), requires_grad=True) for d in data]
        with compiling(compiler):
            value, metrics = loss(data, leaves, {"entropy": leaves})
        return [value.item(), metrics, *torch.autograd.grad(value, leaves)]

    for length in range(8, 20, 2):
        data = [make_datum(4, length, length), make_datum(3, length + 2, 1)]
        with torch._dynamo.config.patch(recompile_limit=2):  # fewer lengths make it give up
            found, wanted = called(data, compiler), called(data)
        assert found[:2] == wanted[:2]
        assert all(map(torch.equal, found[2:], wanted[2:]))


class _Square(torch.autograd.Function):
    """A backward pass that PyTorch can trace, in an operator that `_raising` fails to compile."""

    @staticmethod
    def forward(ctx, values):
        ctx.save_for_backward(values)
        return values * values

    @staticmethod
    def backward(ctx, pull):
        return 2 * ctx.saved_tensors[0] * pull


class _Equal:
    """A callable without a hash and without a name."""

    def __eq__(self, other):
        return True

    def __call__(self, values):
        return print(end="") or (values * values).sum()


class _Module(torch.nn.Module):
    def forward(self, values):
        return print(end="") or (values * values).sum()


def _cube(power, values):
    return print(end="") or (values**power).sum()


STRANGE = {
    "no hash": _Equal(),
    "module": _Module(),
    "partial": functools.partial(_cube, 3),
    "built-in": torch.sum,
    "marked in marked": lambda values: compilable(_Square.apply)(values).sum(),
    "own gradient": lambda values: _Square.apply(values).sum(),
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", STRANGE)
def test_any_callable_can_be_marked(name):
    """Whatever is marked, compiled or not, gives its numbers and its gradient."""
    marked, compiler = compilable(STRANGE[name]), compiled().FunctionCompiler("aot_eager")
    for length in (3, 5, 8):
        found = []
        for one in (compiler, None):
            values = torch.linspace(0.1, 1.0, length, requires_grad=True)
            with compiling(one):
                result = marked(values)
            found.append((result.detach(), *torch.autograd.grad(result, values)))
        torch.testing.assert_close(*found)


def test_a_function_marked_at_each_call_is_tried_once_and_not_kept(caplog):
    """Of functions that a loss makes anew, one warning, and no more than some are held."""
    compiler, held = compiled().FunctionCompiler("eager"), []
    with structlog.testing.capture_logs() as lines:
        for number in range(70):
            values = torch.ones(3 + number)
            held.append(weakref.ref(values))
            with compiling(compiler):
                marked = compilable(lambda own, values=values: print(end="") or own * values)
                assert torch.equal(marked(values), values)
    assert [line["event"] for line in lines] == ["not_compiled"]
    del values, marked
    gc.collect()
    assert sum(ref() is not None for ref in held) <= 1


def _backward_fails(graph, _inputs):
    """A compiler of PyTorch's graphs that fails at backward passes."""
    raise RuntimeError("no code for this")


@pytest.mark.slow
def test_a_loss_whose_backward_pass_is_not_compiled_runs_as_it_is():
    """The failure is met before the forward pass has run, not by who asks for the gradient."""
    from torch._dynamo.backends.common import aot_autograd

    backend = aot_autograd(fw_compiler=lambda graph, _: graph, bw_compiler=_backward_fails)
    compiler, values = (
        compiled().FunctionCompiler(backend),
        torch.linspace(0.1, 1.0, 7, requires_grad=True),
    )
    with structlog.testing.capture_logs() as lines, compiling(compiler):
        result = compilable(lambda own: own.exp().sum())(values)
    (gradient,) = torch.autograd.grad(result, values)
    assert torch.equal(gradient, values.detach().exp())
    assert [line["event"] for line in lines] == ["not_compiled"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_without_a_compiler_of_c_training_is_that_of_compile_off(model, make_datum):
    """What cannot be compiled at all: a warning a kind, and the plain run's bits."""

    def no_compiler(*_):
        raise RuntimeError("no C++ compiler")

    made = []
    for compiler in (None, compiled().FunctionCompiler(no_compiler)):
        learner = Learner(net=model, compiler=compiler)
        with structlog.testing.capture_logs() as lines:
            if compiler is not None:
                compiled().compile_layers(model, no_compiler)
                learner = evolve(learner, attention=compiled().outside())
            for data in steps_of(make_datum, 2):
                found, grads = learner.gradients(data, MarkedLoss())
                made.append((torch.tensor(found.loss), *(g for g in grads if g is not None)))
    names = [line["function"] for line in lines]
    assert names == ["Block.forward", "_results", "MarkedLoss._curved"]
    for one, other in ((made[0], made[2]), (made[1], made[3])):
        assert all(map(torch.equal, one, other))


def test_an_error_of_a_compiled_loss_is_its_own(model, make_datum):
    """An error that the function raises is what a plain run would raise."""

    def fail(values):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        passed(
            model, [make_datum(4, 12, 1)], MarkedLoss(fail), compiled().FunctionCompiler("eager")
        )


@pytest.mark.parametrize("softcap", [0.0, 3.0])
@pytest.mark.parametrize("temperature", [1.0, 0.1, 0.01, 0.001])
def test_a_low_temperature_costs_no_precision(temperature, softcap):
    """Gradients of the two kinds, by logits of up to thousands of nats, against float64."""
    random = torch.Generator().manual_seed(3)
    logits = 4 * torch.randn(60, 300, generator=random)
    logits = logits.div(12) if softcap else logits / temperature
    targets, heat = logits.argmax(dim=1), torch.full((60,), temperature)
    targets[::2] += 1 - 2 * targets[::2].gt(0).long()
    pulls = torch.randn(2, 60, generator=random)

    def gradient(dtype, compiler=None):
        own = logits.to(dtype, copy=True)
        found = softmax_of(
            own, targets, heat.to(dtype), softcap, entropy=True, compiler=compiler
        ).d_logits(*pulls.to(dtype))
        return found.double()

    wanted = gradient(torch.float64)
    scale = wanted.abs().max()
    off = [(gradient(torch.float32, c) - wanted).abs().max() / scale for c in (None, _as_is)]
    assert off[1] < max(4 * off[0], 1e-6)


def _as_is(function):
    """A compiler of one's own, whose code is the function's."""
    return lambda *args: function(*args)


def peak_of(work):
    """Bytes that the process grew by at most inside."""

    def status(key):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    work()
    return status("VmHWM") - before


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not shutil.which("g++"), reason="PyTorch's compiler needs g++ on a CPU")
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read from /proc")
def test_compiled_logits_take_one_buffer(model, monkeypatch):
    """Inductor's code, with soft cap and entropies: plain results, and no second (n, V)."""
    # its search for vector instructions compiles ten programs, longer than all else here takes
    monkeypatch.setattr("torch._inductor.cpu_vec_isa.valid_vec_isa_list", list)
    random = torch.Generator().manual_seed(1)
    logits = torch.randn(300, 20_000, generator=random)
    targets, heat = torch.arange(300), torch.linspace(0.5, 2, 300)
    pulls = torch.randn(300, generator=random), torch.randn(300, generator=random)
    compiler, made = compiled().FunctionCompiler(), []

    def work(buffer, compiler=None):
        softmax = softmax_of(buffer, targets, heat, 3.0, entropy=True, compiler=compiler)
        made.append((softmax.logprobs, softmax.entropy, softmax.d_logits(*pulls)))

    some = logits.clone()
    work(some, compiler)
    assert made[0][2].data_ptr() == some.data_ptr()
    work(logits.clone())
    for one, other in zip(*made, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    size = logits.numel() * 4
    buffers = logits.clone(), logits.clone()
    assert peak_of(lambda: work(buffers[0], compiler)) < 0.5 * size
    assert peak_of(lambda: work(buffers[1])) > 0.9 * size
    assert torch.equal(made[0][2], made[2][2])  # the same again, to the bit


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not shutil.which("g++"), reason="PyTorch's compiler needs g++ on a CPU")
@pytest.mark.parametrize("has_code", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_backend_that_compiles_learns_the_same(has_code, make_datum, monkeypatch):
    """Inductor's graphs, or its code: two updates and logprobs are those without it."""
    if not has_code:  # g++ takes most of a minute for it
        monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, *_, **__: graph)
    found, made = [], []
    for option in ("off", "on"):
        config = TorchConfig(device="cpu", compile=option, threads=1)
        train = OptimSettings(lr=1e-3)
        backend = TorchBackend(config, BuildContext(model="gpt2:new", train=train, steps=2))
        for seed in (1, 2):
            data = [make_datum(5, 12 + seed, seed, tokens=np.arange(12 + seed))]
            metrics = asyncio.run(backend.update(data, LikelihoodLoss()))
        (logprobs,) = asyncio.run(backend.logprobs(data, "policy"))
        made.append(backend._compiler)
        found.append((metrics["loss"], metrics["grad/norm"], logprobs))
        asyncio.run(backend.__aexit__())
    assert made[0] is None
    assert len(made[1]._made) == 2  # of the head; the loss marks nothing
    assert not made[1]._failed  # else the plain functions ran
    (loss, norm, logprobs), (own_loss, own_norm, own_logprobs) = found
    assert own_loss == pytest.approx(loss, rel=1e-4)
    assert own_norm == pytest.approx(norm, rel=1e-3)
    assert np.allclose(own_logprobs, logprobs, atol=1e-4)


@pytest.mark.parametrize("option", [{"compile": "on"}, {"checkpointing": "layers"}])
def test_a_folder_for_compiled_code_that_cannot_be_made_is_named(option, monkeypatch):
    """Where layers are compiled or computed again: what was found, and what to set."""

    def fail(name):
        raise NotADirectoryError(errno.ENOTDIR, "Not a directory", f"/dev/null/code: {name}")

    monkeypatch.setattr(load.importlib, "import_module", fail)
    with pytest.raises(PrerequisiteError, match=r"code: .*dynamo: Not a dir") as found:
        TorchBackend(TorchConfig(device="cpu", **option), BuildContext(model="gpt2:new"))
    assert "TORCHINDUCTOR_CACHE_DIR=" in str(found.value)


@pytest.mark.slow
def test_a_run_without_a_folder_for_compiled_code_ends_at_once(make_hf, tmp_path):
    """The run ends before its first step, with what to set; a model hf:... always needs it."""
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": "/dev/null/code"}
    words = ["run", "--plugin", "toy", "--steps", "1", "--out", "r", "torch.compile=off"]
    done = run_rlvr(*words, "--model", f"hf:{make_hf('llama')}", cwd=tmp_path, env=env)
    assert done.returncode == 4
    assert "found: /dev/null/code: Not a directory" in done.stderr
    assert "TORCHINDUCTOR_CACHE_DIR=" in done.stderr
