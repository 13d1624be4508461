"""A structured trajectory, rendered in each format and read back, has the same spans."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr_sad.sessions.read import read_record
from rlvr_sad.sessions.record import Raw

Spans = list[tuple[str, str]]


@frozen
class Turn:
    """What the agent thought and did, and what came back."""

    thought: str
    action: str
    observation: str


@frozen
class Run:
    """A task and the turns that followed."""

    task: str
    turns: tuple[Turn, ...]

    def spans(self) -> Spans:
        """The spans that every format has to give back: (type, words)."""
        found = []
        for turn in self.turns:
            found += [
                ("reasoning", turn.thought),
                ("action", turn.action),
                ("observation", turn.observation),
            ]
        return found


# Words of any alphabet, also ones that look like markup but are none where they stand.
_WORD = st.text(
    st.characters(exclude_categories=("C", "Z"), exclude_characters="<>`|:#*{}[]\\\"'"),
    min_size=1,
    max_size=8,
)
_TRAPS = st.sampled_from(["Thought", "Action 7", "(Observation)", "=====", "a>b", "“quote”", "OK."])
_LINE = st.lists(_WORD | _TRAPS, min_size=1, max_size=6).map(lambda w: "x " + " ".join(w) + " y")
_LINES = st.lists(_LINE, min_size=1, max_size=3).map("\n".join)
RUNS = st.builds(
    Run,
    _LINE,
    st.lists(st.builds(Turn, _LINES, _LINE, _LINES), min_size=1, max_size=4).map(tuple),
)
ONE_LINE = st.builds(
    Run,
    _LINE,
    st.lists(st.builds(Turn, _LINE, _LINE, _LINES), min_size=1, max_size=4).map(tuple),
)


def numbered(run: Run) -> Any:
    """ReAct with numbers; an observation quotes a later step."""
    steps = [
        f"Thought {n}: {t.thought}\nAction {n}: {t.action}\nObservation {n}: {t.observation}\n"
        for n, t in enumerate(run.turns, start=1)
    ]
    return f"Question: {run.task}\n" + "".join(steps)


def plain(run: Run) -> Any:
    """ReAct without numbers, as the output of an Alpaca record."""
    steps = [
        f"Thought: {t.thought}\nAction: {t.action}\nObservation: {t.observation}\n"
        for t in run.turns
    ]
    return {"instruction": run.task, "input": "", "output": "".join(steps)}


def alfworld(run: Run) -> Any:
    """Lines of a text game."""
    steps = [f"> think: {t.thought}\nOK.\n> {t.action}\n{t.observation}\n" for t in run.turns]
    return {"id": "a", "text": f"Your task is to: {run.task}\n" + "".join(steps)}


def react_chat(run: Run) -> Any:
    """FireAct's chats."""
    messages = [{"role": "user", "content": f"Question: {run.task}"}]
    for t in run.turns:
        said = f"Thought: {t.thought}\nAction: {t.action}"
        messages += [
            {"role": "assistant", "content": said},
            {"role": "user", "content": f"Observation: {t.observation}"},
        ]
    return {"messages": messages}


def openai(run: Run) -> Any:
    """Tool calls beside a content that says why."""
    messages: list[Any] = [{"role": "user", "content": run.task}]
    for n, t in enumerate(run.turns):
        call = {"id": str(n), "function": {"name": "do", "arguments": json.dumps({"x": t.action})}}
        messages += [
            {"role": "assistant", "content": t.thought, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": str(n), "content": t.observation},
        ]
    return messages


def verifiers(run: Run) -> Any:
    """The same with calls as JSON texts, prompt and completion apart."""
    messages = openai(run)
    for message in messages:
        if "tool_calls" in message:
            message["tool_calls"] = [json.dumps(call) for call in message["tool_calls"]]
    return {"id": 1, "prompt": messages[:1], "completion": messages[1:], "reward": 1.0}


def sharegpt(run: Run) -> Any:
    """Calls are messages of their own; thoughts are tags before them."""
    turns = [{"from": "human", "value": run.task}]
    for t in run.turns:
        turns += [
            {"from": "gpt", "value": f"<think>{t.thought}</think>"},
            {
                "from": "function_call",
                "value": json.dumps(
                    {"name": "do", "arguments": {"x": t.action}}, ensure_ascii=False
                ),
            },
            {"from": "observation", "value": t.observation},
        ]
    return {"conversations": turns, "tools": "[]"}


def typed_parts(run: Run) -> Any:
    """LLaMA-Factory's typed parts."""
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "value": run.task}]}]
    for t in run.turns:
        call = json.dumps({"name": "do", "arguments": {"x": t.action}}, ensure_ascii=False)
        parts = [{"type": "reasoning", "value": t.thought}, {"type": "tool_call", "value": call}]
        messages += [
            {"role": "assistant", "content": parts},
            {"role": "tool", "content": [{"type": "text", "value": t.observation}]},
        ]
    return {"messages": messages}


def swe_fence(run: Run) -> Any:
    """SWE-agent's thought_action."""
    steps = [
        {
            "response": f"{t.thought}\n```\n{t.action}\n```",
            "thought": t.thought + "\n",
            "action": t.action + "\n",
            "observation": t.observation,
            "state": "{}",
        }
        for t in run.turns
    ]
    history = [{"role": "system", "content": run.task, "agent": "primary"}]
    return {"environment": "swe_main", "trajectory": steps, "history": history, "info": {}}


def mini_swe(run: Run) -> Any:
    """mini-swe-agent: fences, the environment as the user."""
    messages = [{"role": "user", "content": run.task}]
    for t in run.turns:
        said = f"{t.thought}\n\n```mswea_bash_command\n{t.action}\n```"
        messages += [
            {"role": "assistant", "content": said},
            {"role": "user", "content": f"<output>\n{t.observation}\n</output>"},
        ]
    return messages


def openhands(run: Run) -> Any:
    """Events; the thought and the command in the arguments."""
    events: list[Any] = [
        {"id": 0, "source": "user", "action": "message", "args": {"content": run.task}}
    ]
    for n, t in enumerate(run.turns):
        args = {"command": t.action, "thought": t.thought}
        events += [
            {"id": 2 * n + 1, "source": "agent", "action": "run", "args": args},
            {"id": 2 * n + 2, "source": "agent", "observation": "run", "content": t.observation},
        ]
    return events


def toolbench(run: Run) -> Any:
    """A tree with a pruned branch beside each step of the one that answers."""
    pruned = {"node_type": "Thought", "description": "wrong", "pruned": True, "children": []}
    node: dict[str, Any] = {
        "node_type": "Action Input",
        "description": '{"return_type": "give_answer"}',
        "observation": "",
        "observation_code": 3,
        "pruned": False,
        "children": [],
    }
    node = {"node_type": "Action", "description": "Finish", "pruned": False, "children": [node]}
    for t in reversed(run.turns):
        inner = {
            "node_type": "Action Input",
            "description": json.dumps({"x": t.action}),
            "observation": t.observation,
            "pruned": False,
            "children": [pruned, node],
        }
        act = {"node_type": "Action", "description": "do", "pruned": False, "children": [inner]}
        node = {
            "node_type": "Thought",
            "description": t.thought,
            "pruned": False,
            "children": [act],
        }
    root = {"node_type": "Action Input", "description": "", "children": [pruned, node]}
    return {"win": True, "tree": {"tree": root}, "answer_generation": {"query": run.task}}


def search_tags(run: Run) -> Any:
    """Search-R1 in a chat template."""
    steps = [
        f"<think>{t.thought}</think>\n<search> {t.action} </search>\n"
        f"<information>{t.observation}</information>\n"
        for t in run.turns
    ]
    return (
        f"<|im_start|>user\n{run.task}<|im_end|>\n<|im_start|>assistant\n{''.join(steps)}<|im_end|>"
    )


def hermes(run: Run) -> Any:
    """Hermes in a chat template, tools in turns of their own."""
    turns = [
        f"<|im_start|>assistant\n<scratch_pad>{t.thought}</scratch_pad>\n"
        f"<tool_call>\n{t.action}\n</tool_call><|im_end|>\n"
        f"<|im_start|>tool\n<tool_response>\n{t.observation}\n</tool_response>\n<|im_end|>\n"
        for t in run.turns
    ]
    return f"<|im_start|>user\n{run.task}<|im_end|>\n" + "".join(turns)


def harmony(run: Run) -> Any:
    """gpt-oss's channels."""
    turns = [
        f"<|start|>assistant<|channel|>analysis<|message|>{t.thought}<|end|>"
        f"<|start|>assistant<|channel|>commentary to=functions.do <|constrain|>json"
        f"<|message|>{t.action}<|call|>"
        f"<|start|>functions.do to=assistant<|channel|>commentary<|message|>{t.observation}<|end|>"
        for t in run.turns
    ]
    return f"<|start|>user<|message|>{run.task}<|end|>" + "".join(turns)


RENDERERS: list[Callable[[Run], Any]] = [
    *(numbered, plain, react_chat, openai, verifiers, sharegpt, typed_parts, swe_fence),
    *(mini_swe, openhands, toolbench, search_tags, hermes, harmony),
]


def check(render: Callable[[Run], Any], run: Run) -> None:
    """Every character of a thought, an action or an observation has that type, in this order."""
    value = render(run)
    if isinstance(value, str):
        raw = Raw("0", 1, "text", value.encode())
    else:
        raw = Raw("0", 1, "json", json.dumps(value).encode())
    outcome = read_record(raw, "file")
    assert outcome.rejected is None, outcome.rejected
    (trajectory,) = outcome.trajectories
    text = trajectory.text
    labels = [s.type for s in trajectory.segments for _ in s.text]
    assert trajectory.segments[-1].end == len(text.encode())
    at = text.index(run.task) + len(run.task)
    assert set(labels[: at - 1]) == {"other"}
    for kind, words in run.spans():
        at = text.index(words, at)
        assert set(labels[at : at + len(words)]) == {kind}, (kind, words)
        at += len(words)


@pytest.mark.parametrize("render", RENDERERS, ids=lambda r: r.__name__)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(run=RUNS)
def test_what_is_rendered_is_read_back(render: Callable[[Run], Any], run: Run) -> None:
    """For every format: the same thoughts, actions and observations, in order, nothing else."""
    check(render, run)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(run=ONE_LINE)
def test_a_text_game_is_read_back(run: Run) -> None:
    """The same where a thought is one line."""
    check(alfworld, run)
