"""ToolBench's answers: a search tree, of which only the branch that was chosen is followed.

`answer_generation.train_messages` holds the conversation of the answer; where it is missing, the
tree is walked to the node that finished with an answer. Branches that were given up are never
learnt. A tree in which nothing was answered has no trajectory to learn from, and says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rlvr_sad.formats.calls import as_text, call_text, labels_of, parsed_arguments
from rlvr_sad.formats.dialogue import fill, read_messages
from rlvr_sad.spans.roles import MODEL, TOOL, USER
from rlvr_sad.trajectory_builder import BadRecordError, Piece, TrajectoryBuilder

_ANSWERED = 3
"""ToolBench's status code of a `Finish` that gives an answer (4: it gives up)."""


class ToolBench:
    """One question a record."""

    def claims(self, record: Any) -> bool:
        """True where the tree or the answer made of it is there."""
        if not isinstance(record, dict):
            return False
        return isinstance(record.get("answer_generation"), dict) or (
            isinstance(record.get("tree"), dict) and "tree" in record["tree"]
        )

    def read(self, record: Any) -> Iterable[TrajectoryBuilder]:
        answer = record.get("answer_generation") or {}
        draft = TrajectoryBuilder(labels={**labels_of(record), **labels_of(answer)})
        chains = [c for c in answer.get("train_messages") or [] if isinstance(c, list) and c]
        if chains and answer.get("finish_type", "give_answer") == "give_answer":
            fill(draft, read_messages(chains[-1]))
            return [draft]
        path = _winning_path(_root(record), [])
        if path is None:
            gave_up = answer.get("finish_type") == "give_up"
            found = "it gave up" if gave_up else "none finished"
            raise BadRecordError(
                f"no branch of the tree gives an answer ({found}): nothing to learn"
            )
        question = as_text(answer.get("query") or "")
        draft.message([Piece("other", question, USER)])
        _walk(draft, path)
        return [draft]


def _root(record: Mapping[str, Any]) -> Any:
    tree = record.get("tree")
    return tree.get("tree") if isinstance(tree, dict) else None


def _winning_path(node: Any, above: list[Any]) -> list[Any] | None:
    """Nodes from the root to the first one that answers; a pruned branch is not entered."""
    if not isinstance(node, dict) or node.get("pruned"):
        return None
    path = [*above, node]
    children = node.get("children") or []
    if not children:
        return path if _answers(path) else None
    for child in children:
        found = _winning_path(child, path)
        if found is not None:
            return found
    return None


def _answers(path: list[Any]) -> bool:
    last = path[-1]
    if last.get("observation_code") == _ANSWERED:
        return True
    named = [n.get("description") for n in path if n.get("node_type") == "Action"]
    is_finish = bool(named) and named[-1] == "Finish"
    return is_finish and "give_answer" in as_text(last.get("description") or "")


def _walk(draft: TrajectoryBuilder, path: list[Any]) -> None:
    name = ""
    for node in path[1:]:
        text = as_text(node.get("description") or "")
        if node.get("node_type") == "Thought":
            draft.message([Piece("reasoning", text, MODEL)])
        elif node.get("node_type") == "Action":
            name = text
        else:
            call = {"name": name, "arguments": json.dumps(parsed_arguments(text))}
            draft.message([Piece("action", call_text(call), MODEL)])
        if node.get("observation"):
            draft.message([Piece("observation", as_text(node["observation"]), TOOL)])
