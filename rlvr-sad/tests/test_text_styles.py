"""Styles of plain text, on texts written by hand."""

from __future__ import annotations

import pytest

from rlvr_sad.spans.choose import UNMARKED, read_text

LETTERS = {"other": "-", "reasoning": "r", "action": "a", "observation": "o"}


def typed(text: str) -> list[tuple[str, str]]:
    """The pieces' types (`-` for other) and stripped texts, blank ones left out."""
    draft = read_text(text)
    assert "".join(piece.text for piece in draft.pieces) == text
    return [
        (LETTERS[piece.type], piece.text.strip()) for piece in draft.pieces if piece.text.strip()
    ]


def style(text: str) -> str:
    """The style that was found."""
    return read_text(text).format


def test_numbered_steps() -> None:
    """Each marker begins a span; what stands before the first step is a prompt."""
    text = "Question: why?\nThought 1: hm\nAction 1: Search[x]\nObservation 1: a\nb\n"

    assert style(text) == "react-numbered"
    assert typed(text) == [
        ("-", "Question: why?"),
        ("r", "Thought 1: hm"),
        ("a", "Action 1: Search[x]"),
        ("o", "Observation 1: a\nb"),
    ]


def test_a_marker_that_an_observation_quotes_is_none() -> None:
    """Only the next step counts: neither a later number nor an earlier one ends an observation."""
    text = (
        "Thought 1: a\nAction 1: Search[x]\nObservation 1: a page on ReAct:\n"
        "Action 7: Search[y]\nThought 1: quoted\nObservation 3: quoted\nThought 2: b\n"
        "Action 2: Finish[z]\n"
    )

    assert [kind for kind, _ in typed(text)] == ["r", "a", "o", "r", "a"]
    assert "Action 7" in typed(text)[2][1]
    assert typed(text)[3] == ("r", "Thought 2: b")


def test_actions_without_thoughts_and_a_thought_without_action() -> None:
    """Act-only prompts, a step at which the agent only thought, one that nothing came back from."""
    acts = "Claim: x\nAction 1: Search[x]\nObservation 1: y\nAction 2: Finish[SUPPORTS]\n"
    idle = "Thought 1: a\nThought 1: quoted\nAction 2: quoted\nThought 2: b\nAction 2: Finish[c]\n"
    mute = (
        "Action 1: a\nAction Input 1: b\nThought 1: quoted\nAction 7: quoted\nThought 2: c\n"
        "Action 2: d\nAction 3: e\nObservation 3: f\n"
    )

    assert [kind for kind, _ in typed(acts)] == ["-", "a", "o", "a"]
    assert [kind for kind, _ in typed(idle)] == ["r", "r", "a"]
    assert [said.partition(":")[0] for _, said in typed(mute)] == [
        *("Action 1", "Action Input 1", "Thought 2", "Action 2", "Action 3", "Observation 3")
    ]


def test_the_count_begins_where_the_text_does() -> None:
    """A text may begin in the middle; where step 1 is in it, what comes before is no step."""
    middle = "Thought 4: a\nAction 4: b\nObservation 4: c\nThought 5: d\n"

    assert [kind for kind, _ in typed(middle)] == ["r", "a", "o", "r"]
    assert [kind for kind, _ in typed("Thought 7: no\nThought 1: a\nAction 1: b\n")] == [*"-ra"]


def test_the_count_begins_again_with_a_new_question() -> None:
    """A text of two questions: the second one's first thought is no quotation."""
    text = (
        "Question: p\nThought 1: a\nAction 1: Finish[b]\nObservation 1: ok\n"
        "Question: q\nThought 1: c\nAction 1: Finish[d]\n"
    )

    assert [kind for kind, _ in typed(text)] == ["-", "r", "a", "o", "-", "r", "a"]
    quoted = text.replace("Thought 1: c\nAction 1", "Thought 2: c\nAction 2")
    assert [kind for kind, _ in typed(quoted)] == ["-", "r", "a", "o", "r", "a"]


def test_windows_line_ends() -> None:
    r"""`\r\n` changes nothing, and stays in the text."""
    text = "Thought 1: a\r\nAction 1: Search[x]\r\nObservation 1: b\r\n"

    assert [kind for kind, _ in typed(text)] == ["r", "a", "o"]


def test_unnumbered_steps_with_input_and_final_answer() -> None:
    """LangChain's words: the input belongs to the action, the final answer is one."""
    text = (
        "Question: q\nThought: a\nAction: search\nAction Input: x\nObservation: Action Input: y\n"
        "Thought: b\nFinal Answer: c\n"
    )

    assert style(text) == "react-plain"
    assert [kind for kind, _ in typed(text)] == ["-", "r", "a", "a", "o", "r", "a"]
    more = text + "Question: q\nThought: a\nClaim: no\n\nContext: no\nAction: s\nObservation: x\n"
    more += "Claim: no\n\nQuestion: r\nFinal Answer: c\n"
    assert "".join(kind for kind, _ in typed(more)) == "-raaora" + "-rao" + "-a"


def test_a_question_alone_teaches_nothing() -> None:
    """A log of an agent that did nothing: all of it is a prompt."""
    assert typed("Question: who?\nCorrect answer: nobody\n")[0][0] == "-"
    assert (
        not read_text("Question: who?\nCorrect answer: nobody\n")
        .build(id="0", format="", source="", line=1)
        .is_supervised
    )


def test_alfworld() -> None:
    """`> think:` thinks, `> ` acts, also where the game answers in several lines or not at all."""
    text = (
        "You are in a room.\nYour task is to: look.\n> think: First the lamp.\nOK.\n"
        "> go to desk 1\nOn the desk 1, you see\n  a lamp 1.\n> use lamp 1\n"
    )

    assert style(text) == "react-alfworld"
    assert typed(text) == [
        ("-", "You are in a room.\nYour task is to: look."),
        ("r", "> think: First the lamp."),
        ("o", "OK."),
        ("a", "> go to desk 1"),
        ("o", "On the desk 1, you see\n  a lamp 1."),
        ("a", "> use lamp 1"),
    ]


def test_search_tags_in_a_chat_template() -> None:
    """Information inside the model's turn is the environment's; tags in the prompt are a prompt."""
    text = (
        "<|im_start|>user\nUse <search> query </search>, <answer> x </answer>.<|im_end|>\n"
        "<|im_start|>assistant\n<think>I need it</think>\n<search> cars </search>\n"
        "<information>Doc 1 <b>cars</b></information>\nSo it is that.\n"
        "<search> more </search><information>Doc 2</information>\nclear now </think>\n"
        "<answer> Charger </answer><|im_end|>"
    )

    kinds = [(kind, said) for kind, said in typed(text) if not said.startswith("<|im")]
    assert style(text) == "search-tags"
    assert kinds == [
        ("-", "Use <search> query </search>, <answer> x </answer>."),
        ("r", "<think>I need it</think>"),
        ("a", "<search> cars </search>"),
        ("o", "<information>Doc 1 <b>cars</b></information>"),
        ("r", "So it is that."),
        ("a", "<search> more </search>"),
        ("o", "<information>Doc 2</information>"),
        ("r", "clear now </think>"),
        ("a", "<answer> Charger </answer>"),
    ]


def test_hermes() -> None:
    """Scratch pad, two calls, the tool's answer as its own turn, and the reply."""
    text = (
        "<|im_start|>system\nYou may call <tool_call></tool_call>.<|im_end|>\n"
        "<|im_start|>assistant\n<scratch_pad>Goal: x\nObservation: none</scratch_pad>\n"
        '<tool_call>\n{"name": "a"}\n</tool_call>\n<tool_call>{"name": "b"}</tool_call><|im_end|>\n'
        "<|im_start|>tool\n<tool_response>\n{}\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\nIt is done.<|im_end|>"
    )

    assert style(text) == "hermes"
    assert [k for k, said in typed(text) if not said.startswith(("<|im", "You"))] == [
        *("r", "a", "a", "o", "a")
    ]


def test_harmony() -> None:
    """Analysis thinks, a recipient is called in any channel, other authors are tools."""
    text = (
        "<|start|>system<|message|>You are.<|end|><|start|>user<|message|>2+2?<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Easy.<|end|>"
        "<|start|>assistant to=functions.add<|channel|>commentary <|constrain|>json"
        '<|message|>{"a": 2}<|call|><|start|>functions.add to=assistant<|channel|>commentary'
        "<|message|>4<|end|><|start|>assistant to=python<|channel|>analysis<|message|>1+1<|call|>"
        "<|start|>assistant<|channel|>final<|message|>4.<|return|>"
    )

    assert style(text) == "harmony"
    assert [(k, said) for k, said in typed(text) if not said.startswith("<|")] == [
        ("-", "You are."),
        ("-", "2+2?"),
        ("r", "Easy."),
        ("a", "to=functions.add"),
        ("a", '{"a": 2}'),
        ("o", "4"),
        ("a", "to=python"),
        ("a", "1+1"),
        ("a", "4."),
    ]


def test_a_harmony_prompt_that_awaits_its_answer() -> None:
    """Nothing was said by the model: nothing to learn, and nothing lost."""
    text = "<|start|>user<|message|>Hi<|end|><|start|>assistant"

    assert {kind for kind, _ in typed(text)} == {"-"}


def test_harmony_that_begins_within_the_models_turn() -> None:
    """A completion: its first header has no author, which is the model."""
    text = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes"
    )

    assert [(k, s) for k, s in typed(text) if "<|" not in s] == [("r", "Hm."), ("a", "Yes")]


def test_flattened_roles_with_a_call_that_was_dropped() -> None:
    """`assistant: None` is nobody's words: not learnt, and noted."""
    text = "user: hi\nassistant: hello\nyou\nassistant: None\ntool: {}\nassistant: done"

    assert style(text) == "flattened"
    assert [(k, s) for k, s in typed(text) if not s.endswith(":")] == [
        ("-", "hi"),
        ("a", "hello\nyou"),
        ("-", "None"),
        ("o", "{}"),
        ("a", "done"),
    ]
    assert "not written down" in read_text(text).notes[0]


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Look first.\n```\nls -a\n```", "```\nls -a\n```"),
        ("As in\n```python\nx = 1\n```\nI run\n```bash\nls\n```\n", "```bash\nls\n```"),
        ("\n```\nedit 1:1\n```", "```\nedit 1:1\n```"),
    ],
)
def test_a_thought_and_a_fenced_command(text: str, action: str) -> None:
    """The last outermost block is the command, as SWE-agent has it."""
    assert style(text) == "thought-fence"
    assert [said for kind, said in typed(text) if kind == "a"] == [action]


def test_a_thought_and_a_command_in_tags() -> None:
    """SWE-agent's `<command>` and function calls in XML."""
    assert typed("Look.\n<command>\nls\n</command>") == [
        ("r", "Look."),
        ("a", "<command>\nls\n</command>"),
    ]
    call = "<function=bash>\n<parameter=command>ls</parameter>\n</function>"
    assert typed(f"Look.\n{call}") == [("r", "Look."), ("a", call)]


def test_a_thought_that_is_not_closed() -> None:
    """It ends where the next tag begins a line, or at the end."""
    assert typed("<think>a <search> b\n<search>c</search>") == [
        ("r", "<think>a <search> b"),
        ("a", "<search>c</search>"),
    ]
    assert typed("<think>a") == [("r", "<think>a")]


def test_a_prompt_before_the_first_thought_tag() -> None:
    """A raw text may begin with its question: it is not what the model wrote."""
    assert typed("What is 2+2?\n<think>easy</think><answer>4</answer>")[0] == ("-", "What is 2+2?")


def test_a_text_without_marks_says_so() -> None:
    """It is read as one thought, and carries the note."""
    draft = read_text("I look at the file first.")

    assert draft.format == "unmarked"
    assert draft.notes == [UNMARKED]


def test_joined_texts_of_several_authors_are_not_learnt() -> None:
    """Bare calls in JSON give it away; what lies between them is nobody's for sure."""
    text = 'Be helpful.\nWeather?\n{"name": "w", "arguments": {}}\n{"t": 20}\nIt is 20.\n'

    assert [kind for kind, _ in typed(text)] == ["-", "-", "a", "o", "-"]
    assert style(text) == "joined"
    assert style("Hm.\n</think>\n" + text) == "joined"
    assert style('<think>x</think>\n<tool_call>\n{"name": "w", "arguments": {}}\n</tool_call>') == (
        "hermes"
    )
