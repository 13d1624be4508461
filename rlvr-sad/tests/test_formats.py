"""Records of the formats, each with what is easily got wrong."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from rlvr_sad.sessions.read import Outcome, read_record
from rlvr_sad.sessions.record import Raw
from rlvr_sad.trajectory import AgentTrajectory

LETTERS = {"other": "-", "reasoning": "r", "action": "a", "observation": "o"}


def outcome(value: Any) -> Outcome:
    """What became of a record."""
    return read_record(Raw("0", 1, "json", json.dumps(value).encode()), "file")


def one(value: Any) -> AgentTrajectory:
    """The only trajectory of a record."""
    found = outcome(value)
    assert found.rejected is None, found.rejected
    (trajectory,) = found.trajectories
    return trajectory


def typed(value: Any) -> list[tuple[str, str]]:
    """Types and stripped texts of its segments, blank ones left out."""
    return [(LETTERS[s.type], s.text.strip()) for s in one(value).segments if s.text.strip()]


def refusal(value: Any) -> str:
    """Why a record was refused."""
    found = outcome(value)
    assert found.rejected is not None
    assert not found.trajectories
    return found.rejected.reason


USER = {"role": "user", "content": "q"}


@pytest.mark.parametrize(
    "arguments", ['{"x": 1}', {"x": 1}], ids=["arguments as text", "arguments as object"]
)
@pytest.mark.parametrize("as_text", [True, False], ids=["call as text", "call as object"])
def test_tool_calls_in_every_shape(arguments: Any, as_text: bool) -> None:
    """Content None with several calls; calls and arguments as JSON texts or as objects."""
    call: Any = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    calls = [json.dumps(call)] * 2 if as_text else [call] * 2
    chat = [USER, {"role": "assistant", "content": None, "tool_calls": calls}]
    chat += [{"role": "tool", "content": "{}"}, {"role": "assistant", "content": "done"}]

    written = '{"name": "f", "arguments": {"x": 1}}'
    assert typed(chat) == [("-", "q"), ("a", written), ("a", written), ("o", "{}"), ("a", "done")]


def test_a_call_whose_arguments_are_no_json_stays_as_written() -> None:
    """A model may write broken JSON: it is what it wrote."""
    call = {"function": {"name": "f", "arguments": "{broken"}}
    chat = [USER, {"role": "assistant", "tool_calls": [call]}]

    assert typed(chat)[1] == ("a", '{"name": "f", "arguments": "{broken"}')


def test_words_beside_a_call_say_why() -> None:
    """Without a call the same words are a reply."""
    call = {"function": {"name": "f", "arguments": "{}"}}
    beside = [USER, {"role": "assistant", "content": "I look.", "tool_calls": [call]}]

    assert typed(beside)[1] == ("r", "I look.")
    assert typed([USER, {"role": "assistant", "content": "I look."}])[1] == ("a", "I look.")


def test_reasoning_beside_the_content() -> None:
    """`reasoning_content`: what is in the content is then said, not thought."""
    chat = [USER, {"role": "assistant", "content": "hi", "reasoning_content": "hm"}]

    assert typed(chat) == [("-", "q"), ("r", "hm"), ("a", "hi")]


def test_anthropic_parts() -> None:
    """`thinking`, `tool_use`, and `tool_result` in the user's turn."""
    chat = [
        USER,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "content": [{"type": "text", "text": "got"}]}],
        },
    ]

    assert [kind for kind, _ in typed(chat)] == ["-", "r", "a", "o"]


def test_a_person_who_answers_is_no_environment() -> None:
    """A plain dialogue: later questions are prompts; after tagged guesses, answers of a game."""
    dialogue = [USER, {"role": "assistant", "content": "x"}, USER]
    game = [USER, {"role": "assistant", "content": "Hm.\n<guess>[x]</guess>"}, USER]

    assert [kind for kind, _ in typed(dialogue)] == ["-", "a", "-"]
    assert [kind for kind, _ in typed(game)] == ["-", "r", "a", "o"]


def test_sharegpt() -> None:
    """`from` and `value`, calls and observations as turns."""
    record = {
        "conversations": [
            {"from": "human", "value": "q"},
            {"from": "function_call", "value": '{"name": "f", "arguments": {}}'},
            {"from": "observation", "value": "[]"},
            {"from": "gpt", "value": "It is\n```bash\nls\n```"},
        ],
        "system": "Be short.",
    }

    assert [kind for kind, _ in typed(record)] == ["-", "-", "a", "o", "a"]
    assert one(record).format == "sharegpt"


def test_pictures_become_placeholders_of_their_own() -> None:
    """Typed parts and `<image>` in a text: type other, with the file; one too many is noted."""
    image = {"type": "image_url", "image_url": {"url": "a.png"}}
    parts = {"messages": [{"role": "user", "content": [image, {"type": "text", "text": "who?"}]}]}
    parts["messages"].append({"role": "assistant", "content": "She."})
    marked = {
        "messages": [
            {"role": "user", "content": "<image>who?<image>"},
            {"role": "assistant", "content": "She."},
        ],
        "images": ["a.png", "b.png", "c.png"],
    }

    assert [m.source for m in one(parts).media()] == ["a.png"]
    assert typed(parts) == [("-", "<image>"), ("-", "who?"), ("a", "She.")]
    assert [m.source for m in one(marked).media()] == ["a.png", "b.png"]
    assert one(marked).notes == ("1 media files have no placeholder in the text",)
    assert all(s.type == "other" and s.text == "<image>" for s in one(marked).segments if s.media)


def test_swe_agent_with_tool_calls() -> None:
    """The words are the thought, the calls the action; the demonstration is a prompt."""
    call = {"function": {"name": "bash", "arguments": '{"command": "ls"}'}, "id": "1"}
    record = {
        "trajectory": [
            {"response": "Look.", "thought": "Look.", "action": "ls", "observation": "a b"}
        ],
        "history": [
            {"role": "system", "content": "s", "agent": "main"},
            {"role": "assistant", "content": "demo", "agent": "main", "is_demo": True},
            {"role": "assistant", "content": "Look.", "agent": "main", "tool_calls": [call]},
        ],
        "info": {"exit_status": "submitted"},
    }

    assert typed(record) == [
        ("-", "s"),
        ("-", "demo"),
        ("r", "Look."),
        ("a", '{"name": "bash", "arguments": {"command": "ls"}}'),
        ("o", "a b"),
    ]
    assert one(record).labels["exit_status"] == "submitted"


def test_swe_agent_whose_thought_repeats_the_command() -> None:
    """The command after the thought is the action, not the same words within it."""
    step = {
        "response": "ls\n```\nls\n```",
        "thought": "ls\n",
        "action": "ls\n",
        "observation": "",
    }

    found = typed({"trajectory": [step], "history": []})
    assert found == [("r", "ls"), ("a", "```\nls\n```")]


def test_openhands_takes_a_response_once() -> None:
    """Two calls of one response: its words once, each call with its event; no bookkeeping."""

    def event(n: int, **more: Any) -> dict[str, Any]:
        return {"id": n, "source": "agent", **more}

    calls = [
        {"id": c, "function": {"name": "bash", "arguments": f'{{"command": "{c}"}}'}} for c in "xy"
    ]
    response = {"id": "r", "choices": [{"message": {"content": "Both.", "tool_calls": calls}}]}
    events = [
        {"id": 0, "source": "user", "action": "message", "args": {"content": "q"}},
        {"id": 1, "source": "user", "action": "recall", "args": {"query": "q"}},
        *(
            event(
                n,
                action="run",
                args={"command": c, "thought": "Both."},
                tool_call_metadata={"tool_call_id": c, "model_response": response},
            )
            for n, c in enumerate("xy", start=2)
        ),
        event(4, observation="run", content="done"),
        event(5, observation="agent_state_changed", content=""),
        event(6, action="think", args={"thought": "So."}),
        event(7, action="message", args={"content": "Bye."}),
    ]

    assert typed(events) == [
        ("-", "q"),
        ("r", "Both."),
        ("a", '{"name": "bash", "arguments": {"command": "x"}}'),
        ("a", '{"name": "bash", "arguments": {"command": "y"}}'),
        ("o", "done"),
        ("r", "So."),
        ("a", "Bye."),
    ]
    pairs = [[events[2], events[4]]]
    assert [kind for kind, _ in typed({"history": pairs})] == ["r", "a", "o"]


def test_toolbench_follows_the_branch_that_was_chosen() -> None:
    """The last conversation counts; a tree that gave up is refused with that reason."""
    chain = [
        USER,
        {"role": "assistant", "content": "Hm.", "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "r"},
    ]
    answer = {"finish_type": "give_answer", "train_messages": [chain[:2], chain]}

    assert [k for k, _ in typed({"tree": {}, "answer_generation": answer})] == ["-", "r", "a", "o"]
    gave_up = {"tree": {}, "answer_generation": {**answer, "finish_type": "give_up"}}
    assert "gave up" in refusal(gave_up)


def test_alpaca_whose_output_is_a_reply() -> None:
    """The shape says who wrote it: also a reply with a block of code is no thought."""
    record = {"instruction": "Say hi.", "input": "", "output": "Run\n```\necho hi\n```"}

    assert typed(record) == [("-", "Say hi."), ("a", "Run\n```\necho hi\n```")]

    record |= {"system": "Be brief.", "history": [["Hi?", "Yes."], ["one"], "x"], "input": "Loud."}
    before = ["Be brief.", "Hi?", "Yes.", "Say hi.", "Loud."]
    assert [said for _, said in typed(record)[:-1]] == before
    assert "".join(kind for kind, _ in typed(record)) == "--a" + "--a"


def test_several_questions_of_one_prompt() -> None:
    """A prompt of examples is one trajectory each, numbered from 1; the rest is noted."""
    text = "Solve it.\nQuestion: a\nThought: b\nAnswer: c\nQuestion: d\nThought: e\nAnswer: f\n"
    found = outcome(text).trajectories

    assert [t.id for t in found] == ["0#1", "0#2"]
    assert found[0].notes == ("9 characters before the first question were left out",)
    assert len(outcome({"id": "x", "text": text}).trajectories) == 1


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"path": "x"}, "no format knows an object of path"),
        ([], "no format knows an empty list"),
        (17, "no format knows a value of type int"),
        ([USER], "no message of the model"),
        ([USER, {"role": "wizard", "content": "x"}], "message 2 has the unknown role 'wizard'"),
        ([USER, {"role": "assistant", "content": 7}], "message 2: its content is int"),
        (
            [USER, {"role": "assistant", "content": [{"type": "hologram"}]}],
            "message 2: a part has the unknown type 'hologram'",
        ),
        ([USER, {"role": "assistant", "tool_calls": [{"id": 1}]}], "a tool call has no name"),
        ([USER, USER, USER, {"content": "x"}], "message 4 has no role"),
        ({"id": "x", "text": "  "}, "the text is empty"),
        ({"text": "Once upon a time."}, "nothing in the text says who wrote what"),
        ("200005 35644 200008", "token ids"),
        ({"id": "x", "text": "<think>\ud800</think>"}, "half of a surrogate pair (\\ud800)"),
        (
            {
                "trajectory": [{"action": "a", "observation": "o", "response": "r"}, {}, {}, {}],
                "history": [],
            },
            "no format knows",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(value: Any, said: str) -> None:
    """Never an exception, never silence."""
    assert said in refusal(value)


SEEDS: list[Any] = [
    {"messages": [USER, {"role": "assistant", "content": "<think>x</think>", "tool_calls": []}]},
    {
        "conversations": [{"from": "human", "value": "<image>q"}, {"from": "gpt", "value": "a"}],
        "images": ["a.png"],
    },
    {"prompt": [USER], "completion": [{"role": "assistant", "tool_calls": ["{}"]}]},
    {
        "trajectory": [{"response": "r", "thought": "t", "action": "a", "observation": "o"}],
        "history": [{"role": "user", "content": "q", "agent": "main"}],
        "info": {},
    },
    [{"id": 0, "source": "agent", "action": "run", "args": {"command": "x", "thought": "t"}}],
    {
        "tree": {"tree": {"node_type": "Thought", "children": [{"description": "d"}]}},
        "answer_generation": {"train_messages": [[USER]], "finish_type": "give_answer"},
    },
    {"instruction": "i", "input": "", "output": "Thought: a\nAction: b", "history": [["q", "a"]]},
    {"id": "1", "text": "user: a\nassistant: None\n"},
]


def test_no_damage_to_a_record_is_an_exception() -> None:
    """Whatever is missing or of another type: a trajectory that covers its text, or a reason."""
    rng = random.Random(7)
    junk = [None, 0, 1.5, "", [], {}, "x", [1], [None], {"a": 1}, True, [[]], ["x"], [{}]]

    def damaged(value: Any) -> Any:
        if rng.random() < 0.1:
            return rng.choice(junk)
        if isinstance(value, dict):
            return {k: damaged(v) for k, v in value.items() if rng.random() > 0.05}
        return [damaged(v) for v in value] if isinstance(value, list) else value

    refused = 0
    for index in range(1500):
        found = outcome(damaged(SEEDS[index % len(SEEDS)]))
        assert (found.rejected is None) == bool(found.trajectories)
        refused += found.rejected is not None
        for trajectory in found.trajectories:
            ends = [s.end for s in trajectory.segments]
            assert ends[-1:] == [len(trajectory.text.encode())]
    assert 300 < refused < 1500
