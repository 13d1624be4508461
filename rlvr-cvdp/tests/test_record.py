"""What the sandbox's programs say: numbered, known by its nonce, whole; nothing else is taken."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import json
import os
import resource
import socket
import struct
import sys
import time
import warnings
from pathlib import Path

import pytest

import rlvr_cvdp
from rlvr_cvdp.sandbox.recorder import Recorder

LAUNCH = {"rc": 0, "name": "1"}
ITEM = {"item": "a", "when": "call", "outcome": "passed"}


def _inside():
    """`inside/rlvr_record.py`, which imports nothing of ours."""
    place = Path(rlvr_cvdp.__file__).parent / "inside" / "rlvr_record.py"
    spec = importlib.util.spec_from_file_location("rlvr_record", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _said(tmp_path, speak):
    """The record of a command during which `speak(record module)` ran in a thread."""
    inside = _inside()
    inside.PLACE = str(tmp_path / "record")

    async def listen():
        recorder = Recorder(tmp_path)
        record = recorder.begin()
        await asyncio.to_thread(speak, inside)
        await asyncio.sleep(0.05)
        await recorder.close()
        return record

    return asyncio.run(listen())


def _honest(inside, words):
    speaker = inside.Record()
    replies = [speaker.note(*word) for word in words]
    speaker.close()
    return replies


def test_what_is_said_is_taken_down_in_order(tmp_path):
    """Two programs speak; each is told how many simulations have ended; their last word counts."""
    replies = []

    def speak(inside):
        pytest_ = inside.Record()
        replies.append(pytest_.note("collected", ["a"]))
        replies.extend(_honest(inside, [("launch", LAUNCH)]))
        replies.append(pytest_.note("item", ITEM))
        replies.append(pytest_.note("end"))
        pytest_.close()

    record = _said(tmp_path, speak)
    assert [note.kind for note in record.notes] == ["collected", "launch", "item", "end"]
    assert replies == [0, 1, 1, 1]
    assert (record.is_sound, record.is_whole) == (True, True)


def test_a_record_without_its_last_word_was_cut_off(tmp_path):
    """Pytest that went away in the middle told only a part."""
    record = _said(tmp_path, lambda inside: _honest(inside, [("item", ITEM), ("item", ITEM)]))
    assert (record.is_sound, record.is_whole) == (True, False)


def _raw(frames):
    """Speak these frames, made from the nonce, without the rules."""

    def speak(inside):
        with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(ConnectionError):
            sock.connect(inside.PLACE)
            nonce = inside.read_exactly(sock, 16)
            for frame in frames(inside, nonce):
                sock.sendall(frame)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(4096):
                pass

    return speak


@pytest.mark.parametrize(
    "frames",
    [
        lambda inside, nonce: [inside.pack(b"?" * 16, 0, "launch", LAUNCH)],
        lambda inside, nonce: [inside.pack(nonce, 1, "launch", LAUNCH)],
        lambda inside, nonce: 2 * [inside.pack(nonce, 0, "launch", LAUNCH)],
        lambda inside, nonce: [
            inside.pack(nonce, 0, "end", 0),
            inside.pack(nonce, 1, "launch", LAUNCH),
        ],
        lambda inside, nonce: [inside.pack(nonce, 0, "launch", LAUNCH)[:-3]],
        lambda inside, nonce: [b"\xff\xff\xff\xff"],
        lambda inside, nonce: [struct.pack("!I", 4) + b"null"],
        lambda inside, nonce: [struct.pack("!I", 60_000) + b"[" * 60_000],
        lambda inside, nonce: [struct.pack("!I", 2) + b"\xff\xfe"],
        lambda inside, nonce: [json.dumps([nonce.hex(), 0, "launch", LAUNCH]).encode()],
    ],
    ids=[
        "foreign",
        "skipped",
        "replayed",
        "after the end",
        "cut",
        "huge",
        "null",
        "deep",
        "bytes",
        "bare",
    ],
)
def test_what_does_not_follow_makes_the_record_unsound(tmp_path, frames):
    """A wrong nonce or number, a replay, a word after the last, or half a note is noticed."""
    record = _said(tmp_path, _raw(frames))
    assert not record.is_sound
    assert not record.is_whole
    assert len(record.notes) <= 1


def test_what_was_said_before_hanging_up_counts(tmp_path):
    """Who does not wait for the answers does not get rid of the notes after them."""

    def speak(inside):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(inside.PLACE)
            notes = [inside.pack(inside.read_exactly(sock, 16), 0, "launch", LAUNCH)] * 2
            sock.sendall(b"".join(notes))

    record = _said(tmp_path, speak)
    assert not record.is_sound
    assert len(record.notes) == 1


def test_a_connection_waits_for_a_free_descriptor(tmp_path, monkeypatch):
    """Meanwhile the loop does not ask for one without a pause."""
    asked = []
    accept = Recorder._accept
    monkeypatch.setattr(Recorder, "_accept", lambda self: (asked.append(1), accept(self)))
    most, limit = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def listen(speaker):
        recorder = Recorder(tmp_path)
        recorder.begin()
        speaker.connect(str(tmp_path / "record"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limit))
        try:
            await asyncio.sleep(0.3)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, limit))
        refused = len(asked)
        await asyncio.sleep(0.3)
        await recorder.close()
        return refused

    with socket.socket(socket.AF_UNIX) as speaker:
        assert 0 < asyncio.run(listen(speaker)) < 10
        assert len(speaker.recv(100)) == 16


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("build", None),
        ("build", {"how": 1, "refused": []}),
        ("build", {"how": "ok", "refused": [1]}),
        ("launch", {"rc": "0", "name": "1"}),
        ("launch", [0]),
        ("item", {"item": "a", "when": "call"}),
        ("collected", [["a"]]),
        ("netlist", {"ok": 1}),
        ("tool", {"tool": "yosys", "argv": "x", "cwd": "/", "scripts": {}}),
        ("tool", {"tool": "yosys", "argv": [], "cwd": "/", "scripts": {"a": None}}),
        ("anything", None),
        (7, None),
        ([], None),
    ],
)
def test_a_note_of_another_shape_is_none(tmp_path, kind, body):
    """What the sandbox's own programs never say makes the record unsound, and nothing fails."""
    record = _said(tmp_path, _raw(lambda inside, nonce: [inside.pack(nonce, 0, kind, body)]))
    assert (record.is_sound, record.notes) == (False, [])


def test_who_says_too_much_is_not_listened_to(tmp_path):
    """Large notes are dropped before they are read: this process does not hold them all."""
    big = "x" * 15_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def speak(inside):
        speaker = inside.Record()
        with contextlib.suppress(OSError):
            for _ in range(20):
                speaker.note("netlist", big)
        speaker.close()

    record = _said(tmp_path, speak)
    assert not record.is_sound
    assert len(record.notes) <= 4
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_many_speakers_at_once_do_not_take_all_descriptors(tmp_path):
    """A program that connects again and again is hung up on; others of this process can go on."""
    seen = []

    def speak(inside):
        held = []
        for _ in range(1000):
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].connect(inside.PLACE)
        time.sleep(0.5)
        seen.append(len(os.listdir("/proc/self/fd")) - len(held))
        for sock in held:
            sock.close()

    record = _said(tmp_path, speak)
    assert not record.is_sound
    assert seen[0] < 300


def test_what_an_earlier_command_says_late_is_not_the_next_ones(tmp_path):
    """A connection belongs to the command during which it was made."""
    inside = _inside()
    inside.PLACE = str(tmp_path / "record")

    async def listen():
        recorder = Recorder(tmp_path)
        first = recorder.begin()
        late = await asyncio.to_thread(inside.Record)
        second = recorder.begin()
        await asyncio.to_thread(late.note, "launch", LAUNCH)
        late.close()
        await recorder.close()
        return len(first.notes), len(second.notes)

    assert asyncio.run(listen()) == (1, 0)


@pytest.mark.parametrize("ends", ["closed", "with its loop"])
@pytest.mark.parametrize("turns", range(6))
def test_a_connection_that_is_just_accepted_is_hung_up(tmp_path, turns, ends):
    """Ended in any turn of the loop around an accept, the recorder leaves no socket open."""
    recorder = Recorder(tmp_path)

    async def listen(speaker):
        recorder.begin()
        speaker.connect(str(tmp_path / "record"))
        for _ in range(turns):
            await asyncio.sleep(0)
        if ends == "closed":
            await recorder.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    with warnings.catch_warnings(), socket.socket(socket.AF_UNIX) as speaker:
        warnings.simplefilter("error")
        asyncio.run(listen(speaker))
        asyncio.run(recorder.close())
        gc.collect()
        speaker.settimeout(5)
        with contextlib.suppress(ConnectionResetError):
            while speaker.recv(100):
                pass


def _simulated(code):
    """What a hearing takes down of a child that runs this code with the inside module."""
    inside = _inside()
    hearing, theirs = inside.pair()
    child = os.fork()
    if child == 0:
        os.dup2(theirs, inside.REPORT_FD)
        code(inside)
        os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    return hearing.close()


def test_a_simulation_reports_over_its_socket():
    """Results and summary arrive, and nothing where the end is missing or a number is wrong."""

    def whole(inside):
        inside.report("summary", [2, 0])
        inside.report("results", "<x/>")
        inside.end_report()

    def again(inside):
        whole(inside)
        inside.report("results", "<forged/>")

    def skipping(inside):
        inside.report("results", "<x/>")
        inside._numbers["sent"] = 5
        inside.end_report()

    assert _simulated(whole) == {"summary": [2, 0], "results": "<x/>", "end": 2}
    assert _simulated(lambda inside: inside.report("results", "<x/>")) == {}
    assert _simulated(again) == {}
    assert _simulated(skipping) == {}


def test_no_path_leads_to_what_a_simulation_reports_over():
    """Opening the descriptor under /proc fails, as the sockets of the supervisor do."""
    ours, theirs = socket.socketpair()
    listener = socket.socket(socket.AF_UNIX)
    for sock in (ours, theirs, listener):
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY):
            with pytest.raises(OSError, match="No such device or address"):
                os.open(f"/proc/self/fd/{sock.fileno()}", flags)
        sock.close()
    assert sys.platform == "linux"
