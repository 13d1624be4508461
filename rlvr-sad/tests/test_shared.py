"""The trajectories of ../shared/data are read; the labelled ones get their labels."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from rlvr.testing.tools import shared_data
from rlvr_sad.commands.gold import Tally, compare
from rlvr_sad.sessions.prepare import trajectories_of
from rlvr_sad.sessions.read import read_record
from rlvr_sad.sessions.record import Raw, Rejected
from rlvr_sad.trajectory import AgentTrajectory


def folder() -> Path:
    """Where the trajectories lie."""
    return shared_data("trajectories", "gold_spans.jsonl").parent


def test_the_labelled_spans_are_found() -> None:
    """At least 97 % over all, 99 % on those with structure; under 0.1 % of observations learnt."""
    native: dict[str, dict[str, AgentTrajectory]] = {}
    everything, structured = Tally(), Tally()
    for line in (folder() / "gold_spans.jsonl").read_text("utf-8").splitlines():
        gold = json.loads(line)
        if gold["source"].startswith("llamafactory"):  # its text does not say who wrote what
            if gold["source"] not in native:
                read = trajectories_of([folder() / gold["source"]])
                native[gold["source"]] = {t.id: t for t in read if isinstance(t, AgentTrajectory)}
            found = native[gold["source"]][gold["id"]]
            assert found.text == gold["text"]
        else:
            data = json.dumps({"id": gold["id"], "text": gold["text"]}).encode()
            (found,) = read_record(Raw("0", 1, "json", data), gold["source"]).trajectories
            assert found.id == gold["id"]
        tally = compare(gold, found)
        everything.update(tally)
        if gold["source"].startswith(("llamafactory", "swe_agent")):
            structured.update(tally)

    assert everything.total() > 400_000
    assert everything.share >= 0.97
    assert structured.share >= 0.99
    assert everything.leak < 0.001


def test_every_native_file_is_read_or_refused_for_a_reason() -> None:
    """Per file: as many records as its list says, and the few refusals that are right."""
    refusals: Counter[str] = Counter()
    for line in (folder() / "MANIFEST.jsonl").read_text("utf-8").splitlines():
        entry = json.loads(line)
        found = list(trajectories_of([folder() / entry["path"]]))
        assert found, entry["path"]
        ids = {one.id.partition("#")[0] for one in found}
        assert len(ids) == entry["n"] or entry["path"].startswith("hermes"), entry["path"]
        refusals.update(one.reason.split(" (")[0] for one in found if isinstance(one, Rejected))

    assert set(refusals) == {
        "no branch of the tree gives an answer",
        "the text is token ids: decode them with their tokenizer first",
    }
    assert refusals["no branch of the tree gives an answer"] == 3
