"""The agent's syntax, and the files that it works on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_cvdp.episodes import work_tree
from rlvr_cvdp.episodes.actions import actions_of
from rlvr_cvdp.episodes.work_tree import RefusedError, WorkTree, checked_path
from rlvr_cvdp.prompts.agent import ACTIONS

OUTSIDE = [
    "/etc/passwd", "../rtl/a.sv", "rtl/../src/test.py", "rtl/../../x", "src/test.py", "a.sv", "rtl",
    "rtl/", "/code/src/test.py", "/code/../x", "/code//etc/passwd", "~/x", "rtl/.hidden", "rtl//a",
    "rtl/./a.sv", "rtl/a b.sv", "rtl/a\x00.sv", "rtl/a\nb", "rtl\\..\\x", "-rtl/a.sv", "rtl/-a", "",
    "C:/x", "rtl/$(id)", "rtl/a;b", "harness/x", "rundir/../src/x", "rtl/a..sv",
]  # fmt: skip


def one(text: str):
    (action,) = actions_of(text)
    return action


def test_every_action_of_the_prompt_is_understood():
    """The examples that the policy is shown parse without an error."""
    found = actions_of(ACTIONS)
    assert [a.verb for a in found] == [
        "list", "read", "write", "replace", "run", "run", "run", "run", "submit",
    ]  # fmt: skip
    assert not [a.error for a in found if a.error]
    read, write, replace = found[1:4]
    assert (read.words, read.lines) == (("rtl/example.sv", "1-40"), (1, 40))
    assert write.body == "module example;\nendmodule\n"
    assert replace.body.startswith("the old lines")
    assert replace.new == "the new lines\n"
    assert found[-2].words == ("simulate", "verif/example_tb.sv")


@pytest.mark.parametrize(
    ("text", "lines"),
    [("7", (7, 7)), ("7-9", (7, 9)), ("7:9", (7, 9)), ("7-", (7, None)), ("7 - 9", (7, 9))],
)
def test_ranges_of_lines(text, lines):
    """One line, a range, or up to the end."""
    action = one(f"```read rtl/a.sv {text}\n```")
    assert not action.error
    assert action.lines == lines


def test_tolerated_ways_to_write_an_action():
    """The word `action` in front, capitals, Windows ends of line, tildes, longer fences, blanks."""
    for text in (
        "```action run compile\n```",
        "```action\nrun compile\n```",
        "```tool: run compile\n```",
        "```RUN compile\n```",
        "```run compile\r\n```\r\n",
        "~~~run compile\n~~~",
        "`````run compile\n`````",
        "  ``` run  compile \n  ```",
        "```run compile",
        "<think>```submit\n```</think>\nI compile:\n```run compile\n```\nand wait.",
    ):
        action = one(text)
        assert (action.verb, action.words, action.error) == ("run", ("compile",), ""), text


def test_what_is_no_action():
    """Code blocks and words are the policy's own."""
    assert actions_of("```verilog\nmodule a; endmodule\n```\nrun compile\n```\nlist\n```") == []
    assert actions_of("") == []


def test_a_longer_fence_holds_a_shorter_one():
    """A document with fences of its own can be written."""
    action = one("````write docs/a.md\n```verilog\nx\n```\n````")
    assert action.body == "```verilog\nx\n```\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("```delete rtl/a.sv\n```", "no action"),
        ("```write rtl/a.sv\nmodule a;", "not closed"),
        ("```write\nx\n```", "path"),
        ("```write rtl/a.sv rtl/b.sv\nx\n```", "one path"),
        ("```read\n```", "path"),
        ("```read rtl/a.sv ten\n```", "FIRST-LAST"),
        ("```run\n```", "which tool"),
        ("```replace rtl/a.sv\nold\n```", "<<<<<<<"),
    ],
)
def test_errors_are_said(text, words):
    """A wrong action says what is wrong, and is not done."""
    assert words in one(text).error


@given(st.text(max_size=300))
def test_any_text_can_be_read(text):
    """Nothing that a policy writes stops the parser."""
    for action in actions_of(text) + actions_of(f"```{text}\n{text}\n```"):
        assert len(action.title) <= 120
        first, last = action.lines
        assert first >= 0
        assert last is None or last >= 0


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_path_leads_out(path):
    """Absolute, upward, odd and foreign paths are refused for reading and writing alike."""
    tree = WorkTree({"rtl/a.sv": "x\n"})
    with pytest.raises(RefusedError):
        tree.write(path, "x")
    with pytest.raises(RefusedError):
        tree.read(path)
    assert tree.files == {"rtl/a.sv": "x\n"}


@given(st.text(max_size=40))
def test_a_path_that_is_taken_stays_inside(path):
    """What is let through is a plain path below one of the four folders."""
    try:
        name = checked_path(path)
    except RefusedError:
        return
    parts = name.split("/")
    assert parts[0] in work_tree.FOLDERS
    assert all(part not in ("", ".", "..") for part in parts)
    assert name.isascii()


def test_files_are_listed_read_written_and_replaced():
    """The four things that can be done, and what counts as written."""
    tree = WorkTree({"rtl/a.sv": "one\ntwo\nthree\n", "README.md": "x"})
    assert tree.listing() == ["README.md (1 lines)", "rtl/a.sv (3 lines)"]
    assert tree.read("rtl/a.sv", 2, 9) == ["2: two", "3: three"]
    assert tree.read("/code/rtl/a.sv") == ["1: one", "2: two", "3: three"]
    assert tree.read("README.md") == ["1: x"]
    tree.replace("rtl/a.sv", "two\n", "zwei\n")
    tree.write("verif/tb.sv", "module tb;\nendmodule\n")
    assert tree.files["rtl/a.sv"] == "one\nzwei\nthree\n"
    assert set(tree.written()) == {"rtl/a.sv", "verif/tb.sv"}
    tree.write("rtl/a.sv", "one\ntwo\nthree\n")
    assert set(tree.written()) == {"verif/tb.sv"}


@pytest.mark.parametrize(
    ("old", "words"), [("e\n", "2 times"), ("four", "not in the file"), ("", "not in the file")]
)
def test_a_replacement_must_be_meant(old, words):
    """Text that is not there, or there twice, is not replaced."""
    tree = WorkTree({"rtl/a.sv": "one\ntwo\nthree\n"})
    with pytest.raises(RefusedError, match=words):
        tree.replace("rtl/a.sv", old, "x")


def test_limits_of_a_tree(monkeypatch):
    """Size of a file, of all, their number; a folder is no file and a file no folder."""
    for name, value in (("MAX_FILE", 10), ("MAX_TOTAL", 25), ("MAX_FILES", 4)):
        monkeypatch.setattr(work_tree, name, value)
    tree = WorkTree({"rtl/a.sv": "x" * 50})
    with pytest.raises(RefusedError, match="10 characters"):
        tree.write("rtl/b.sv", "x" * 11)
    for name in "bc":
        tree.write(f"rtl/{name}.sv", "x" * 10)
    with pytest.raises(RefusedError, match="25 characters"):
        tree.write("rtl/d.sv", "x" * 6)
    tree.write("rtl/c.sv", "")
    tree.write("rtl/d/e.sv", "x")
    with pytest.raises(RefusedError, match="a folder"):
        tree.write("rtl/d", "x")
    with pytest.raises(RefusedError, match="not a folder"):
        tree.write("rtl/b.sv/x", "x")
    tree.write("rtl/f.sv", "x")
    with pytest.raises(RefusedError, match="4 files"):
        tree.write("rtl/g.sv", "x")


def test_lone_surrogates_do_not_survive():
    """What no file and no tokenizer can hold is replaced when it is written."""
    tree = WorkTree({})
    tree.write("rtl/a.sv", "a\ud800b")
    assert tree.files["rtl/a.sv"] == "a?b"
