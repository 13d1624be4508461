"""Chat templates of texts and of parts: what is rendered is what was said, or an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlvr import BackendError, ChatTemplate, Message

jinja2 = pytest.importorskip("jinja2")

TURN = "{% for m in messages %}<{{ m.role }}>BODY{% endfor %}{% if is_open %}<assistant>{% endif %}"
FORGETS = "{% if '</think>' in m.content %}{{ m.content.split('</think>')[-1] }}{% else %}"
ASKED = [
    Message(role="user", content="one"),
    Message(role="assistant", content="<think>two</think>three"),
    Message(role="user", content="four"),
]


def template(body: str) -> ChatTemplate:
    """A template whose turns have this body."""
    environment = jinja2.Environment()
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    source = environment.from_string(TURN.replace("BODY", body))

    def apply(messages: list[dict[str, Any]], is_open: bool) -> str:
        text: str = source.render(messages=messages, is_open=is_open)
        return text

    return ChatTemplate(apply, ["<end>"], "made here")


def test_parts_go_to_a_template_that_leaves_texts_out() -> None:
    """Each text once, as it was said."""
    parts = template("{% for p in m.content if p.type == 'text' %}{{ p.text }}{% endfor %}")
    (piece,) = parts.opening(ASKED)

    assert piece.text == ("<user>one<assistant><think>two</think>three<user>four<assistant>")


@pytest.mark.parametrize("printed", ["{{ m.content }}", "{{ m.content | tojson }}"])
def test_a_list_of_parts_is_never_printed(printed: str) -> None:
    """A template that drops thoughts from texts is refused; it would print a list as it stands."""
    with pytest.raises(BackendError, match="leaves out the assistant message"):
        template(f"{FORGETS}{printed}{{% endif %}}").opening(ASKED)
