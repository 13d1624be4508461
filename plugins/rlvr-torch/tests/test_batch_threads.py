"""Batch threads: order kept, everything waited for, as many as suit the model."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
import torch

from rlvr import BuildContext
from rlvr_torch.backend import TorchBackend
from rlvr_torch.config import TorchConfig
from rlvr_torch.runtime import batch_threads
from rlvr_torch.runtime.batch_threads import LARGE, TINY, BatchThreads, decode_cores, usable_cores

CPU = torch.device("cpu")


@pytest.fixture
def threads():
    """Three threads."""
    threads = BatchThreads(3)
    yield threads
    threads.close()


def test_pieces_run_at_the_same_time_and_keep_their_order(threads):
    """Three pieces that wait for each other all end, in the order given."""
    together = threading.Barrier(3, timeout=5)

    def work(piece):
        together.wait()
        return piece * 10

    assert threads.map(work, [3, 1, 2]) == [30, 10, 20]


def test_members_compute_on_one_core_each(threads):
    """Torch's own threads would fight over the cores that batch threads have filled."""
    assert set(threads.map(lambda _: torch.get_num_threads(), range(6))) == {1}


def test_a_failure_is_raised_after_all_have_ended(threads):
    """Nothing runs on behind the caller's back."""
    ended = []

    def work(piece):
        if piece == 0:
            raise ValueError("piece 0")
        time.sleep(0.02)
        ended.append(piece)

    with pytest.raises(ValueError, match="piece 0"):
        threads.map(work, [0, 1, 2])
    assert sorted(ended) == [1, 2]


def test_a_crew_of_one_works_in_the_callers_thread():
    """No thread is made where none helps."""
    assert (
        BatchThreads().map(lambda _: threading.current_thread(), [1, 2])
        == [threading.current_thread()] * 2
    )


def test_small_models_on_a_cpu_get_a_thread_a_core():
    """Large models and GPUs get one thread; an asked-for number is taken."""

    def suited(device, weights, threads=0):
        threads = BatchThreads.suited(device, weights, threads)
        (found,) = threads.map(lambda _: torch.get_num_threads(), [0])
        threads.close()
        return threads.size, found

    assert suited(CPU, 1000) == (usable_cores(), 1)
    assert suited(CPU, 1000, 5) == (5, 1)
    assert suited(CPU, 1000, 1) == (1, 1)
    assert suited(CPU, LARGE, 2) == (1, 2)
    assert suited(torch.device("cuda"), 1000, 2) == (1, 2)


def test_decoding_spreads_each_operation():
    """One batch in the caller's thread, with so many cores; other crews work with theirs again."""
    decoding, training = BatchThreads.decoding(2), BatchThreads.suited(CPU, 1000, 3)
    assert decoding.size == 1
    assert decoding.map(lambda _: torch.get_num_threads(), [0, 1]) == [2, 2]
    assert training.map(lambda _: torch.get_num_threads(), [0]) == [1]
    training.close()


def test_no_more_cores_are_taken_than_omp_num_threads_says(monkeypatch):
    """What is no number of threads is as if it were not there."""
    monkeypatch.delenv("OMP_NUM_THREADS")
    all_of_them = usable_cores()
    for said, cores in (
        ("1", 1),
        ("1,4", 1),
        ("9999", all_of_them),
        ("0", all_of_them),
        ("many", all_of_them),
    ):
        monkeypatch.setenv("OMP_NUM_THREADS", said)
        assert usable_cores() == cores, said


def test_decoding_of_a_tiny_model_takes_one_core(monkeypatch):
    """By its weights alone, unless a number is asked for; a backend's engine decodes with it."""
    monkeypatch.setattr(batch_threads, "usable_cores", lambda: 4)
    assert [decode_cores(weights) for weights in (1000, TINY, TINY + 1, LARGE)] == [1, 1, 4, 4]
    assert [decode_cores(weights, 3) for weights in (1000, LARGE)] == [3, 3]
    wide = "gpt2:new?layers=2&heads=2&width=256&positions=32"
    for model, threads, cores in (("gpt2:new", 0, 1), (wide, 0, 4), ("gpt2:new", 2, 2)):
        backend = TorchBackend(
            TorchConfig(device="cpu", threads=threads), BuildContext(model=model)
        )
        backend._engine._threads.prepare()
        assert torch.get_num_threads() == cores
        asyncio.run(backend.__aexit__())
