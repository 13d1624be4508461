"""Which trajectories are held out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr import ConfigError
from rlvr_sad.config import SadConfig
from rlvr_sad.corpus.corpus import Corpus, read_corpus
from rlvr_sad.corpus.split import Named, held_out, settled
from rlvr_sad.sessions.cache import TrajectoryCache


def record(question: str, answer: str = "a", **labels: Any) -> dict[str, Any]:
    """A chat of one turn."""
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return {"messages": messages, **labels}


def corpus_of(write: Any, records: list[dict[str, Any]], **wanted: Any) -> Corpus:
    """The records as a corpus of one file."""
    path = write("a.jsonl", "\n".join(map(json.dumps, records)))
    cache = TrajectoryCache(path.with_name("c.sqlite"))
    try:
        return read_corpus([path], SadConfig(**wanted), cache)
    finally:
        cache.close()


def sides(corpus: Corpus) -> dict[str, set[str]]:
    """Task to the splits that its trajectories are in."""
    found: dict[str, set[str]] = {}
    for problem in corpus.problems:
        found.setdefault(problem.labels["family"], set()).add(problem.split)
    return found


def test_a_task_is_on_one_side(write: Any) -> None:
    """Forty tries at eight tasks: each task's tries are all trained on, or all held out."""
    records = [record(f"q {n}", f"try {n}", task_id=n % 8) for n in range(40)]
    found = sides(corpus_of(write, records, held_out=0.4))

    assert len(found) == 8
    assert all(len(splits) == 1 for splits in found.values())
    assert set.union(*found.values()) == {"train", "test"}


def test_a_share_of_nothing_holds_nothing_out() -> None:
    """With a share of 0 all tasks are trained on; with the least share above it one is held out."""
    assert held_out(["a", "b", "c"], 0.0) == frozenset()
    assert len(held_out(["a", "b", "c"], 1e-9)) == 1


def test_without_ids_the_question_is_the_task(write: Any) -> None:
    """Different answers to one question stay together; other questions are other tasks."""
    records = [record(f"question {n % 6}", f"answer {n}") for n in range(18)]
    found = sides(corpus_of(write, records, held_out=0.3))

    assert len(found) == 6
    assert all(len(splits) == 1 for splits in found.values())


def test_without_a_prompt_the_text_is_the_task(write: Any) -> None:
    """Equal texts are never on both sides."""
    texts = [f"Thought: think {n % 5}\nAction: act\nObservation: o\n" for n in range(15)]
    records = [{"id": str(n), "text": text} for n, text in enumerate(texts)]
    found = sides(corpus_of(write, records, held_out=0.3))

    assert len(found) == 5
    assert all(len(splits) == 1 for splits in found.values())


def test_a_label_task_that_never_differs_names_no_task(write: Any) -> None:
    """It is the data set's name, and content decides; where it differs, it is the task's."""
    same = [record(f"q{n}", task="gsm8k") for n in range(4)]
    other = [record("q", f"a{n}", task=f"task {n % 2}") for n in range(4)]

    assert len(sides(corpus_of(write, same))) == 4
    assert set(sides(corpus_of(write, other))) == {"task 0", "task 1"}


def corpus_of_files(write: Any, files: dict[str, list[dict[str, Any]]], **wanted: Any) -> Corpus:
    """Several files of records."""
    paths = []
    for name, records in files.items():
        path = write(name.replace("/", "_"), "\n".join(map(json.dumps, records)))
        if "/" in name:
            folder = path.parent / name.partition("/")[0]
            folder.mkdir(exist_ok=True)
            path = path.rename(folder / name.partition("/")[2])
        paths.append(path)
    cache = TrajectoryCache(paths[0].parent / "c.sqlite")
    try:
        return read_corpus(paths, SadConfig(**wanted), cache)
    finally:
        cache.close()


def test_joined_data_sets_are_not_two_tasks(write: Any) -> None:
    """Each file names its data set in the label task: no set is held out whole, and it is said."""
    files = {
        f"{name}.jsonl": [record(f"{name} {n}", task=name) for n in range(10)]
        for name in ("gsm8k", "hotpot")
    }
    corpus = corpus_of_files(write, files, held_out=0.3)

    assert len(sides(corpus)) == 20
    assert {p.labels["source"] for p in corpus.problems if p.split == "train"} == set(files)
    assert [n for note, n in corpus.notes.items() if "names no task" in note] == [20]
    named = corpus_of_files(write, files, split_by="task")
    assert set(sides(named)) == {"gsm8k", "hotpot"}  # a person who names the label means it


def test_files_of_one_record_are_looked_at_together(write: Any) -> None:
    """A label task names tasks where it differs in a folder of such files, or in all of them."""
    folder = {f"a/{n}.json": [record("q", f"x{n}", task=f"t{n % 2}")] for n in range(4)}
    apart = {f"b{n}/x.json": [record("q", f"y{n}", task=f"u{n % 2}")] for n in range(4)}
    same = {f"c/{n}.json": [record(f"p{n}", task="gsm8k")] for n in range(3)}

    assert set(sides(corpus_of_files(write, folder))) == {"t0", "t1"}
    assert set(sides(corpus_of_files(write, apart))) == {"u0", "u1"}
    assert len(sides(corpus_of_files(write, folder | same))) == 5


def test_a_task_with_an_id_and_one_without_are_one_where_the_text_is(write: Any) -> None:
    """Attempts of a file with ids and of one without never part, and the id is the name."""
    files = {
        "ids.jsonl": [record(f"question {n}", "x", task_id=n) for n in range(12)],
        "none.jsonl": [record(f"question  {n}\n", f"y{n}") for n in range(12)],
        "other.jsonl": [record(f"question {n}", "z", instance_id=f"q-{n}") for n in range(3)],
    }
    found = sides(corpus_of_files(write, files, held_out=0.4))

    assert len(found) == 12
    assert all(len(splits) == 1 for splits in found.values())
    assert {str(n) for n in range(3, 12)} < set(found)


def test_ids_outrank_a_text_that_all_share(write: Any) -> None:
    """One instruction for all tasks tells none apart; a record without id joins them, aloud."""
    records = [record("act", f"a{n}", task_id=n) for n in range(6)]
    assert len(sides(corpus_of(write, records))) == 6

    joined = corpus_of(write, [*records, record("act"), record("other")])
    assert len(sides(joined)) == 2
    assert [n for note, n in joined.notes.items() if "count as one" in note] == [7]


NAMED = st.builds(
    lambda task, name, text, file: (task, name, text, file),
    st.sampled_from(["", "s", "t"]),
    st.sampled_from(["", "1", "2", "3"]),
    st.sampled_from("abcd"),
    st.sampled_from(["x/1", "x/2", "y/3"]),
)


def parted(named: list[tuple[str, str, str, str]]) -> list[Named]:
    """What `task_of` gives of labels task and task_id, a text and a file."""
    found = []
    for task, name, text, file in named:
        fields = tuple(key for key, value in (("task", task), ("task_id", name)) if value)
        whole = " ".join(value for value in (task, name) if value)
        found.append(Named(name=whole or text, fields=fields, content=text, source=file))
    return found


def related(named: list[tuple[str, str, str, str]]) -> list[list[bool]]:
    """Which are one task, straight from the rule, by trying all ways from one to the other."""

    def says(one: tuple[str, str, str, str]) -> tuple[tuple[bool, bool], str]:
        task, name, text, file = one
        if task and not name:
            only = [o for o in named if o[0] and not o[1]]
            in_file = [o for o in only if o[3] == file]
            in_folder = [o for o in only if o[3][0] == file[0]]
            near = next((o for o in (in_file, in_folder, only) if len(o) > 1), [])
            if len({o[0] for o in near}) < 2:
                task = ""
        return (bool(task), bool(name)), " ".join(v for v in (task, name) if v) or f"text {text}"

    said = [says(one) for one in named]
    count = range(len(named))
    reach = [
        [
            said[i][1] == said[j][1] or (named[i][2] == named[j][2] and said[i][0] != said[j][0])
            for j in count
        ]
        for i in count
    ]
    for k in count:
        for i in count:
            for j in count:
                reach[i][j] |= reach[i][k] and reach[k][j]
    return reach


@settings(max_examples=100, deadline=None)
@given(st.lists(NAMED, max_size=12), st.floats(0.01, 0.99), st.randoms(use_true_random=False))
def test_tasks_are_what_the_rule_says(named: Any, share: float, rng: Any) -> None:
    """
    Against a brute-force reading of the rule.

    Equal tasks have equal names, others other names; the order of records changes nothing; no task
    is on both sides, and neither side is empty where there are two tasks.
    """
    tasks = settled(parted(named)).tasks
    wanted = related(named)
    assert [[a == b for b in tasks] for a in tasks] == wanted

    order = rng.sample(range(len(named)), len(named))
    assert settled(parted([named[i] for i in order])).tasks == tuple(tasks[i] for i in order)

    outside = held_out(tasks, share)
    sides_ = [task in outside for task in tasks]
    assert all(
        sides_[i] == sides_[j] for i, row in enumerate(wanted) for j, same in enumerate(row) if same
    )
    if len(set(tasks)) > 1:
        assert set(sides_) == {True, False}


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("123")), min_size=1))
def test_attempts_without_a_name_move_no_task(more: Any) -> None:
    """A task that records name keeps its name, and so its side, when others join."""
    before = parted([("", name, text, "x/1") for text, name in zip("abc", "123", strict=True)])
    after = parted([("", "", text, "y/3") for text, _ in more])

    assert settled([*before, *after]).tasks[:3] == settled(before).tasks


def test_the_label_that_is_named_decides(write: Any) -> None:
    """`sad.split_by` outranks ids; records without the label go by content."""
    records = [record("q", "a", task_id=n, trial=n % 2) for n in range(4)]
    records.append(record("another"))
    found = sides(corpus_of(write, records, split_by="trial"))

    assert {"0", "1"} < set(found)
    assert len(found) == 3


def test_a_label_that_no_record_has_is_refused(write: Any) -> None:
    """Tasks are never told apart by something else in silence: refused, or counted in a note."""
    records = [record(f"q{n}", task_id=n) for n in range(3)]
    with pytest.raises(ConfigError, match="no record has it; labels: task_id"):
        corpus_of(write, records, split_by="game")

    mixed = [*records, record("another")]
    notes = corpus_of(write, mixed, split_by="task_id").notes
    assert [n for note, n in notes.items() if note.startswith("no label task_id")] == [1]


def test_a_problem_is_what_it_says(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its digest goes with its words and not with the version of the readers: runs can go on."""
    before = [p.digest for p in corpus_of(write, [record("q"), record("p")]).problems]
    monkeypatch.setattr("rlvr_sad.sessions.cache.code_digest", lambda: "the next version")
    after = [p.digest for p in corpus_of(write, [record("q", trial=1), record("r")]).problems]

    assert before[0] == after[0]
    assert len({*before, *after}) == 3


def test_a_reward_that_is_no_number_is_not_enough(write: Any) -> None:
    """NaN is not at least anything: the record is left out, and listed."""
    records = [record("q", reward=float("nan")), record("p", reward=1.0)]
    corpus = corpus_of(write, records, min_reward=0.5)

    assert len(corpus.problems) == 1
    assert list(corpus.unsupported.values()) == ["its reward nan is below 0.5 (sad.min_reward)"]


@given(st.sets(st.text(max_size=8), max_size=40), st.floats(0, 0.99), st.text(max_size=8))
def test_a_task_stays_on_its_side(tasks: set[str], share: float, more: str) -> None:
    """Both sides have tasks where there are two or more; others that join move none of many."""
    found = held_out(tasks, share)

    assert found <= tasks
    if share > 0 and len(tasks) > 1:
        assert 0 < len(found) < len(tasks)
    if min(len(found), len(tasks - found)) > 1:  # no side was filled up
        assert held_out(tasks | {more}, share) - {more} == found - {more}


def test_shares_are_about_what_was_asked_for() -> None:
    """Of 2000 tasks a tenth, within 3 standard deviations."""
    share = len(held_out(map(str, range(2000)), 0.1)) / 2000

    assert abs(share - 0.1) < 3 * (0.1 * 0.9 / 2000) ** 0.5


def test_what_is_left_out_is_listed(write: Any) -> None:
    """Broken records, empty ones, low rewards: each with its place and the reason."""
    path: Path = write(
        "a.jsonl",
        "\n".join(
            [
                json.dumps(record("q", "a", reward=1)),
                "{broken",
                json.dumps(record("q", " ")),
                json.dumps(record("q2", "b", reward=0.25)),
                json.dumps(record("q3", "c")),
            ]
        ),
    )
    cache = TrajectoryCache(path.with_name("c.sqlite"))
    corpus = read_corpus([path], SadConfig(min_reward=0.5), cache)
    cache.close()

    assert [p.id for p in corpus.problems] == ["a.jsonl#0"]
    reasons = list(corpus.unsupported.items())
    assert [name.partition(" ")[0] for name, _ in reasons] == [f"a.jsonl:{n}" for n in (2, 3, 4, 5)]
    assert "no JSON" in reasons[0][1]
    assert "nothing to learn" in reasons[1][1]
    assert "0.25 is below 0.5" in reasons[2][1]
    assert "names no reward" in reasons[3][1]


def test_ids_are_unique_over_files(write: Any) -> None:
    """Files of one name in two folders, and one id twice in a file."""
    text = {"text": "Thought: t\nAction: a\n"}
    first = write("a.jsonl", "\n".join([json.dumps({"id": "k", **text})] * 2))
    folder = first.parent / "more"
    folder.mkdir()
    second = folder / "a.jsonl"
    second.write_text(json.dumps({"id": "k", **text}))
    cache = TrajectoryCache(first.with_name("c.sqlite"))
    corpus = read_corpus([first, second], SadConfig(), cache)
    cache.close()

    assert [p.id for p in corpus.problems] == ["a.jsonl#k", "a.jsonl#k~2", "more/a.jsonl#k"]
