"""Rows that are damaged or unusual: each named with a reason, and the others go on."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rlvr_process import run_rlvr

from rlvr import ConfigError
from rlvr_cvdp.commands.setup import list_problems
from rlvr_cvdp.datasets.files import RowError, check_tree, unix_lines
from rlvr_cvdp.datasets.patch import apply_patch
from rlvr_cvdp.datasets.rows import Unsupported, parse_row, read_rows
from rlvr_cvdp.paths import answer_path, tree_path

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


def test_the_longest_name_of_a_file_is_no_fault():
    """255 bytes, as file systems take them; one more is refused."""
    check_tree([f"rtl/{'a' * 255}"])
    with pytest.raises(RowError, match="too long"):
        check_tree([f"rtl/{'a' * 256}"])


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
        ({"harness": {"docker-compose.yml": BUILD.format(build=".")}},
         "harness", "direct is built from ./Dockerfile, which is not there"),
        ({"harness": {"docker-compose.yml": BUILD.format(build="{dockerfile: src/D}")}},
         "harness", "direct is built from ./src/D, which is not there"),
        ({"harness": {"docker-compose.yml": BUILD.format(build="https://a.com/b.git")}},
         "harness", "b.git/Dockerfile, which is not there"),
        ({"harness": {"docker-compose.yml": BUILD.format(build="."), "Dockerfile": "RUN x\n"}},
         "harness", "./Dockerfile, which names no image"),
        ({"harness": {"docker-compose.yml": BUILD.format(build="."),
                      "Dockerfile": "FROM evil AS evil\nFROM evil\n"}},
         "harness", "needs the image evil"),
        ({"harness": {"docker-compose.yml": BUILD.replace("    build: {build}\n", "")}},
         "harness", "direct has neither an image nor a build"),
        ({"harness": {"docker-compose.yml": "include: [a.yml]\n" + BUILD.format(build=".")}},
         "harness", "includes other compose files"),
    ],
)  # fmt: skip
def test_each_reason_has_words_and_a_kind(bench, changes, kind, reason):
    """Damaged paths, foreign images and other forms are named; a good row beside them is read."""
    task = bench.task(bench.row(id="bad_0001", **changes), bench.row(id="good_0001"))
    assert [p.id for p in task.problems("all")] == ["good_0001"]
    (row,) = task.left_out()
    assert (row.id, row.kind) == ("bad_0001", kind)
    assert reason in row.reason


def with_compose(bench, *lines: str, old: str = "", new: str = ""):
    """The small row, its service with further lines or with one text for another."""
    compose = bench.compose.replace(old, new) + "".join(f"    {line}\n" for line in lines)
    return bench.row(id="cvdp_copilot_changed_0001", harness={"docker-compose.yml": compose})


def why_left_out(bench, row) -> str:
    """The reason of kind `harness` that a row is listed with, "" where it is a problem."""
    rows = bench.task(row).left_out()
    assert [row.kind for row in rows] in ([], ["harness"])
    return rows[0].reason if rows else ""


KNOWN_IMAGES = [
    *("__OSS_SIM_IMAGE__", "__OSS_PNR_IMAGE__", "hdlc/sim:osvb", "docker.io/hdlc/impl:pnr"),
    *("ghcr.io/hdl/sim/osvb", "ghcr.io/hdl/sim/osvb:latest", "ghcr.io/hdl/impl/pnr"),
    *("hdl/sim/osvb", "hdl/impl/pnr", "nvidia/cvdp-sim:v1.0.0", "nvidia/cvdp-sim"),
    "nvidia/cvdp-sim:v2@sha256:" + "0" * 64,
]
FOREIGN_IMAGES = [
    *("evil.com/x-hdl/sim-mine", "evil/nvidia/cvdp-simulator-other", "nvidia/cvdp-simulator"),
    *("evil/nvidia/cvdp-sim", "hdl/simulator", "evil.com/hdl/sim/osvb", "evil/hdlc/sim:osvb"),
    *("hdlc/sim-mine", "hdl/sim/osvb/x", "x__OSS_SIM_IMAGE__", "__OSS_SIM_IMAGE__x"),
    *("__OSS_OTHER__", "nvidia/cvdp-sim:v1/x", "verification_image", "${IMAGE}"),
]


@pytest.mark.parametrize("image", KNOWN_IMAGES)
def test_images_that_are_stood_in_for(bench, image):
    """Each name that published rows use, with any tag, as an image or below a build."""
    as_image = with_compose(bench, old="__OSS_SIM_IMAGE__", new=image)
    assert why_left_out(bench, as_image) == ""
    harness = {"docker-compose.yml": BUILD.format(build="."), "Dockerfile": f"FROM {image}\n"}
    assert why_left_out(bench, bench.row(harness=harness)) == ""


@pytest.mark.parametrize("image", FOREIGN_IMAGES)
def test_names_that_only_look_like_those(bench, image):
    """A known name inside another is another image, which is named."""
    as_image = with_compose(bench, old="__OSS_SIM_IMAGE__", new=image)
    assert why_left_out(bench, as_image) == f"service direct needs the image {image}"
    harness = {"docker-compose.yml": BUILD.format(build="."), "Dockerfile": f"FROM {image}\n"}
    assert f"needs the image {image}" in why_left_out(bench, bench.row(harness=harness))


@pytest.mark.parametrize(
    "volume",
    [
        *("./src/:/src/:ro", "./src:/src/", "./src/:/src", "./src:/src:rw", "src:/src"),
        *("./rtl:/code/rtl", "./verif/:/code/verif/", "./docs:/code/docs:ro", ".:/code"),
        *("./rundir:/code/rundir", "./src/lib:/src/lib"),
        "{type: bind, source: ./src, target: /src, read_only: true}",
    ],
)
def test_mounts_of_what_is_there_anyway(bench, volume):
    """The problem's own folders, where the sandbox has them, are no reason to leave a row out."""
    assert why_left_out(bench, with_compose(bench, old="./src/:/src/:ro", new=volume)) == ""


@pytest.mark.parametrize(
    ("volume", "named"),
    [
        ("/etc:/src", "/etc at /src"),
        ("/src:/src", "/src at /src"),
        ("../src:/src", "../src at /src"),
        ("~/src:/src", "~/src at /src"),
        ("./src/../../x:/src", "./src/../../x at /src"),
        ("./rtl:/src", "./rtl at /src"),
        ("./rtl:/rtl", "./rtl at /rtl"),
        ("/opt/tools:/code/tools", "/opt/tools at /code/tools"),
        ("../../rundir:/code/rundir", "../../rundir at /code/rundir"),
        ("./rtl:/code/../etc", "./rtl at /code/../etc"),
        ("/var/run/docker.sock:/var/run/docker.sock", "/var/run/docker.sock at"),
        ("cache:/cache", "cache at /cache"),
        ("/cache", "mounts /cache,"),
        ("{type: bind, source: /etc, target: /src}", "/etc at /src"),
        ("{type: tmpfs, target: /scratch}", "mounts /scratch,"),
        ("5", "mounts 5,"),
    ],
)
def test_mounts_of_anything_else(bench, volume, named):
    """A service that wants what the sandbox does not have would fail every answer: it is listed."""
    reason = why_left_out(bench, with_compose(bench, old="./src/:/src/:ro", new=volume))
    assert named in reason
    assert "not there in the sandbox" in reason


@pytest.mark.parametrize("names", ["[gone]", "{gone: {condition: service_healthy}}", "gone", "[7]"])
def test_depending_on_nothing(bench, names):
    """A dependency that the file does not have is named, in each of compose's forms."""
    reason = why_left_out(bench, with_compose(bench, f"depends_on: {names}"))
    assert reason.startswith("service direct depends on ")
    assert "not there" in reason


@pytest.mark.parametrize("key", ["extends", "volumes_from", "configs", "secrets"])
def test_keys_that_bring_in_something_else(bench, key):
    """What would come from another service or file is not guessed."""
    assert key in why_left_out(bench, with_compose(bench, f"{key}: [other]"))


def test_keys_without_effect(bench):
    """Those that the manual calls ignored change nothing about the services."""
    ignored = (
        *("healthcheck: {test: 'false'}", "networks: [licnetwork]", "network_mode: host"),
        *("ports: ['80:80']", "restart: always", "user: root", "privileged: true", "x-own: 1"),
        "depends_on: [direct]",
    )
    row = with_compose(bench, *ignored)
    assert parse_row(row).services == parse_row(bench.row()).services


@pytest.mark.parametrize("folder", ["/src/rundir/", "/rundir", "/nowhere"])
def test_every_service_starts_in_rundir(bench, folder):
    """As the official runner's `-w /code/rundir` has it; public lint rows name /src/rundir/."""
    row = with_compose(bench, old="/code/rundir", new=folder)
    assert parse_row(row).services == parse_row(bench.row()).services


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


@example(": \\")
@example("./ ..")
@example("./C:/x")
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
    assert "1 problem, 4 rows not verifiable" in said.err
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
    command = ("cvdp", "list", "--dataset", str(path))
    assert run_rlvr(*command).returncode == 0
    refused = run_rlvr(*command, "--strict")
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
