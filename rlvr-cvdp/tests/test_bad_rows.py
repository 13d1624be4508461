"""Rows that are damaged or unusual: each named with a reason, and the others go on."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr.errors import ConfigError
from rlvr_cvdp.commands import list_problems
from rlvr_cvdp.files import unix_lines
from rlvr_cvdp.patch import apply_patch
from rlvr_cvdp.paths import answer_path, tree_path
from rlvr_cvdp.rows import Unsupported, parse_row, read_rows

BUILD = """\
services:
  direct:
    build: {build}
    env_file: ./src/.env
    command: pytest /src/test_runner.py
"""


def write(bench, *lines: bytes):
    path = bench.folder / "rows.jsonl"
    path.write_bytes(b"\n".join(lines))
    return path


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_bytes_that_are_not_utf8(bench, end):
    """A row with other bytes is named with the byte; the rows around it are read."""
    good = json.dumps(bench.row(id="good_0001")).encode()
    bad = json.dumps(bench.row(id="bad_0001")).encode().replace(b"plus 1", b"plus \xb51")
    rows = list(read_rows(write(bench, good + end[:-1], bad, good.replace(b"good", b"more"))))
    assert [row.id for row in rows] == ["good_0001", "bad_0001", "more_0001"]
    assert [type(row) is Unsupported for row in rows] == [False, True, False]
    assert "line 2 is not UTF-8: byte" in rows[1].reason
    assert "0xb5" in rows[1].reason
    assert rows[1].kind == "encoding"


def test_halves_of_surrogate_pairs(bench):
    """Text that no file can hold is refused; a whole pair (an emoji) is text like any other."""
    half, whole = bench.row(id="half_0001"), bench.row(id="whole_0001")
    half["input"]["prompt"], whole["input"]["prompt"] = "x \ud83d y", "x \U0001f600 y"
    task = bench.task(half, whole)
    assert [p.id for p in task.problems("all")] == ["whole_0001"]
    assert "surrogate" in task.unsupported()["half_0001"]


@pytest.mark.parametrize(
    ("changes", "kind", "reason"),
    [
        ({"context": {"/etc/passwd": "x"}}, "paths", "'/etc/passwd'"),
        ({"context": {"rtl/../../x.sv": "x"}}, "paths", "outside its tree"),
        ({"context": {"C:\\rtl\\a.sv": "x"}}, "paths", "outside its tree"),
        ({"context": {"rtl/a\x00.sv": "x"}}, "paths", "outside its tree"),
        ({"context": {"rtl": "x"}}, "paths", "a file and a folder"),
        ({"context": {"rtl/a": "x", "rtl/a/b.sv": "y"}}, "paths", "a file and a folder"),
        ({"context": {"rtl/a.sv": "x", "./rtl/a.sv": "y"}}, "paths", "twice"),
        ({"context": {"rtl/" + "a" * 300 + ".sv": "x"}}, "paths", "too long"),
        ({"context": {"rtl/a.sv": 5}}, "not a row", "rtl/a.sv is not text"),
        ({"harness": {"/src/x.py": "x"}}, "paths", "outside its tree"),
        ({"harness": {"src/test_inc.py/x": "x"}}, "paths", "a file and a folder"),
        ({"targets": {"/tmp/a.sv": ""}}, "paths", "outside rtl, verif and docs"),
        ({"targets": {"rtl/../a.sv": ""}}, "paths", "outside rtl, verif and docs"),
        ({"categories": ["cid012", "easy"], "harness": {"src/x": "image __VERIF_EDA_IMAGE__"}},
         "commercial simulator", "commercial"),
        ({"categories": ["cid003", "easy"], "harness": {"Dockerfile": "FROM __VERIF_EDA_IMAGE__"}},
         "commercial simulator", "commercial"),
        ({"harness": {"docker-compose.yml": "services:\n  a: 5\n"}}, "harness", "is empty"),
        ({"harness": {"docker-compose.yml": "services:\n  a:\n    image: __OSS_SIM_IMAGE__\n"}},
         "harness", "no command"),
        ({"harness": {"docker-compose.yml": BUILD.format(build="."), "Dockerfile": "FROM a/b\n"}},
         "harness", "needs the image a/b"),
    ],
)  # fmt: skip
def test_each_reason_has_words_and_a_kind(bench, changes, kind, reason):
    """Damaged paths, foreign images and other forms are named; a good row beside them is read."""
    task = bench.task(bench.row(id="bad_0001", **changes), bench.row(id="good_0001"))
    assert [p.id for p in task.problems("all")] == ["good_0001"]
    (row,) = task.left_out()
    assert (row.id, row.kind) == ("bad_0001", kind)
    assert reason in row.reason


def test_categories_do_not_decide(bench):
    """A testbench category with an open image is a problem; the image decides, not the number."""
    for category in ("cid012", "cid013", "cid014", "cid003", 3):
        problem = bench.problem(categories=[category, "easy"])
        assert problem.payload.services
    assert problem.payload.category == "cid003"


@pytest.mark.parametrize(
    ("build", "name", "text"),
    [
        (".", "Dockerfile", "FROM __OSS_SIM_IMAGE__\nRUN pip install x\n"),
        ("{dockerfile: src/Dockerfile.synth}", "src/Dockerfile.synth", "FROM __OSS_PNR_IMAGE__\n"),
        ("{context: src, dockerfile: D}", "src/D", "FROM hdlc/sim:osvb AS base\nFROM base\n"),
        (".", "Dockerfile", "FROM --platform=linux/amd64 nvidia/cvdp-sim:v1.0.0\n"),
    ],
)
def test_services_that_are_built(bench, build, name, text):
    """`build:` in its forms reads where the image below is an open one, stages of its own too."""
    harness = {"docker-compose.yml": BUILD.format(build=build), name: text}
    assert [s.name for s in bench.problem(harness=harness).payload.services] == ["direct"]


def test_documents_are_context_and_targets(bench):
    """Files of docs/ are shown, and may be what is to be written, beside code."""
    problem = bench.problem(
        context={"docs/spec.md": "# Adder"}, targets={"rtl/inc.sv": "", "docs/notes.md": ""}
    )
    assert problem.payload.targets == ("rtl/inc.sv", "docs/notes.md")
    assert "docs/spec.md" in problem.prompt[1].content
    assert "['rtl/inc.sv', 'docs/notes.md']" in problem.prompt[1].content


def test_absolute_paths_of_the_tree_are_relative_ones(bench):
    """`/code/rtl/a.sv` is `rtl/a.sv`, in context, harness and targets."""
    row = bench.row(context={"/code/rtl/b.sv": "x"}, targets={"/code/rtl/inc.sv": ""})
    problem = parse_row(row)
    assert list(problem.context) == ["rtl/b.sv"]
    assert problem.targets == ("rtl/inc.sv",)


@given(st.text(alphabet="abc/.\\:\x00 ~", max_size=20))
def test_no_path_leaves_the_tree(path):
    """Whatever the text, what comes back is relative, normalised and inside."""
    for normal in (tree_path(path), answer_path(path)):
        if normal is not None:
            assert not normal.startswith(("/", "../"))
            assert "/../" not in f"/{normal}/"
            assert tree_path(normal) == normal


def test_windows_line_ends_make_no_difference(bench):
    """The same harness with Windows line ends: same services, same problem."""
    row = bench.row()
    files = row["harness"]["files"]
    crlf = {**row, "harness": {"files": {k: v.replace("\n", "\r\n") for k, v in files.items()}}}
    one, other = parse_row(row), parse_row(crlf)
    assert dict(one.harness) == dict(other.harness)
    assert one.services == other.services
    assert one.digest() == other.digest()


LINES = st.lists(st.text(alphabet="ab =\t", max_size=6), max_size=6)


@given(LINES, st.sampled_from(["src/.env", "src/.env_x", "src/a/run.sh", "x.tcl", "t.py", "c.yml"]))
def test_line_ends_are_normalised_where_they_break(lines, name):
    """In scripts and settings any mix of line ends becomes Unix ones, once and for all."""
    text = "\r\n".join(lines)
    (fixed,) = unix_lines({name: text}).values()
    assert fixed == "\n".join(lines)
    assert unix_lines({name: fixed}) == {name: fixed}
    assert unix_lines({"src/golden.txt": text}) == {"src/golden.txt": text}


def test_patches_meet_other_line_ends():
    """A diff fits a file with Windows line ends; one with escaped line breaks is read."""
    diff = "@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
    assert apply_patch("a\r\nb\r\n", diff) == "a\r\nc\n"
    assert apply_patch("a\nb\n", r"@@ -1,2 +1,2 @@\n a\n-b\n+c\n") == "a\nc\n"


PLACES = [
    *((key,) for key in ("categories", "input", "output", "harness", "split", "golden", "patch")),
    *(("input", key) for key in ("prompt", "context")),
    *(("output", key) for key in ("context", "response")),
    *(("harness", "files"), ("harness", "files", "docker-compose.yml")),
    *(("harness", "files", "src/.env"), ("harness", "files", "src/test_runner.py")),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["cid006", "services: {a: {image: [], env_file: 5}}", "\x00", "../x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["rtl/a.sv", "src/x.py", "/x", "files", "services", ""]), inner, max_size=3
    ),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PLACES), JSON)
def test_any_value_anywhere(bench, place, value):
    """Whatever stands in a field, the row is a problem or has a reason; the next row is read."""
    row = json.loads(json.dumps(bench.row(id="odd_0001")))
    inner = row
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    odd, good = read_rows(bench.dataset(row, bench.row(id="good_0001")))
    assert not isinstance(good, Unsupported)
    assert odd.reason if isinstance(odd, Unsupported) else odd.targets or odd.response


def test_strict_refuses_and_counts(bench):
    """`cvdp.strict`: one unusable row is enough; the error counts them and names the first."""
    rows = [bench.row(id=f"bad_{n:04}", context={"../x": ""}) for n in range(5)]
    task = bench.task(bench.row(), *rows, strict=True)
    with pytest.raises(ConfigError) as caught:
        list(task.problems("all"))
    assert "found: 5 that cannot be verified" in str(caught.value)
    assert "bad_0000: a file of it lies outside its tree" in str(caught.value)
    assert "and 2 more" in str(caught.value)
    assert len(list(bench.task(bench.row(), strict=True).problems("all"))) == 1


def test_the_list_counts_kinds(bench, capsys):
    """`rlvr cvdp list`: exit 0, each row with its reason, and a count of each kind."""
    path = bench.dataset(
        bench.row(),
        bench.row(id="a_0001", context={"../x": ""}),
        bench.row(id="b_0001", harness={"Dockerfile": "FROM __VERIF_EDA_IMAGE__"}),
        bench.row(id="c_0001", harness={"Dockerfile": "FROM __VERIF_EDA_IMAGE__"}),
        "{",
    )
    assert list_problems(["--dataset", str(path)]) == 0
    said = capsys.readouterr()
    assert "1 problems, 4 rows not verifiable" in said.err
    assert "commercial simulator 2, paths 1, not a row 1" in said.err
    assert list_problems(["--dataset", str(path), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["kind"] for row in rows] == [
        *("", "paths", "commercial simulator", "commercial simulator", "not a row")
    ]
    with pytest.raises(ConfigError):
        list_problems(["--dataset", str(path), "--strict"])


@pytest.mark.integration
def test_the_command_line_lists_and_refuses(bench):
    """From the shell: 0 with a count, and 2 with `--strict`."""
    path = bench.dataset(bench.row(), "{")
    command = [sys.executable, "-m", "rlvr.cli.main", "cvdp", "list", "--dataset", str(path)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    refused = subprocess.run([*command, "--strict"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
