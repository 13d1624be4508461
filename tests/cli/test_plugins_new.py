"""`rlvr plugins new` and `check`: each kind is made and passes; each kind of fault is found."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import attrs
import pytest
from attrs import frozen
from rlvr_process import run_rlvr

from rlvr.border.calls import Border
from rlvr.cli.main import main
from rlvr.cli.plugins_new import KINDS, command_of, files_of
from rlvr.cli.plugins_report import mended_by, one_line, said
from rlvr.errors import ConfigError, PartError
from rlvr.plugins.author_error import place_of
from rlvr.specs import TeacherSpec
from rlvr.testing.offered import Offered
from tests.conftest import LEAN, PluginSite

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

BUILD = '"""Sums."""\n\n    def __init__(self, *given):\n        {}\n'
ABOUT = '"""Problems: here, sums with 1."""'
FAULTS: dict[str, tuple[str, str, str, str, str]] = {
    # name: kind, what is replaced by what, the part that is named, what is said of it
    "build": ("task", ABOUT, BUILD.format("1 / 0"), "task", "ZeroDivisionError"),
    "listing": ("task", "for number in range(20):", "for number in 20:", "task", "not iterable"),
    "golden": ("task", "(problem.id, problem.payload)", "(problem.id, '?')", "task", "reference"),
    "garbage": ("task", "answer == right", "answer in (right, '')", "task", "is judged right"),
    "ids": ("task", "-{number}", "", "task", "two problems with the id 'ids'"),
    "type": ("task", "return Reward(", "return float(is_right)\n        Reward(", "reward",
             "the reward gave 1.0 (float); return rlvr.Reward(value=..., score01=...)"),
    "bools": ("task", "return Reward(", "return is_right\n        Reward(", "reward",
              "(bool); return rlvr.Reward(value=..., score01=...)"),
    "nothing": ("task", "return Reward(", "Reward(", "reward", "None; return rlvr."),
    "zero": ("task", "float(is_right)", "0.0", "task", "is judged score01 = 0, not 1"),
    "bounds": ("task", "value=same", "value=2.0 * same", "task",
               "value = 2, not 1, the top of its bounds"),
    "raises": ("task", "right = trajectory.completion.strip(), problem.payload",
               "right = None, problem.answer", "task", "no attribute 'answer'"),
    "starter": ("task", 'reward="starter"', 'reward="starter", starter="gpt2:new"',
                "the plugin", "a function that gives a model spec"),
    "key": ("task", "    async def __call__",
            "    def verdict_key(self, problem, trajectory):\n        return 'a' * 64\n\n"
            "    async def __call__", "reward",
            "to 'key-1', where it is judged otherwise"),
    "flaky": ("task", "answer == right", "answer == right and bool(id(object()) and COIN())",
              "task", "flaky"),
    "slow": ("task", ABOUT, BUILD.format("__import__('time').sleep(0.2)"),
             "task", "0."),
    "verdict": ("task", "is_right =", "__import__('time').sleep(0.2); is_right =", "task",
                "on average"),
    "numbers": ("task", "score01=float(is_right))",
                "score01=float(is_right), components={'a': None})", "reward",
                "the reward gave components['a'] = None, which is no finite number"),
    "again": ("task", "in range(20):", "in ONCE:", "task", "none is left when problems() is"),
    "refers": ("task", "return Trajectory.from_text(problem.id, problem.payload)",
               "return problem.payload", "task", "promised: a Trajectory or None; came: '1'"),
    "spread": ("task", "Trajectory.from_text(problem.id, problem.payload)",
               "Trajectory.from_text('else', problem.payload)", "task", "a trajectory of 'else'"),
    "dated": ("task", "digest=answer,", "digest=str(id(answer) + COIN()),", "task",
              "have different digest"),
    "folder": ("task", "question = ", "__import__('os').chdir('/')\n                question = ",
               "task", "it changed the working directory to /"),
    "unsaid": ("task", "is_right =", "raise Unsaid\n        is_right =", "task",
               "Unsaid: (its text raised ValueError)"),
    "cancels": ("task", "is_right =", "raise KeyboardInterrupt\n        is_right =", "task",
                "KeyboardInterrupt (rlvr-cancels/rlvr_cancels.py:"),
    "heavy": ("callback", "RLVR_API = 1", "import torch\n\nRLVR_API = 1", "the plugin", "'torch'"),
    "slip": ("callback", "def step_finished", "def step_finish", "callback", "did you mean"),
    "impure": ("curriculum", "step=step)", "step=step + COIN())", "curriculum", ": step 40 gives"),
    "shape": ("advantage", "return [[value", "return [[0.0] + [value", "advantage", ""),
    "named": ("task", 'reward="named"', 'reward="names"', "task", "no reward plugin"),
    "missing": ("algorithm", '"grpo"', '"grqo"', "algorithm", "grqo"),
    "value": ("algorithm", "1e-5", "'much'", "algorithm", "train.lr"),
    "record": ("check", "return CheckResult(ok=found is not None, found=found or \"nothing\", "
               "fix=\"apt install python3\")", "return True", "check", "came: True"),
    "argv": ("command", "def hello(argv: list[str]) -> int:", "def hello() -> int:",
             "command", "too many positional arguments"),
    "detached": ("loss", "return sum(terms), {}", "return sum(terms).detach(), {}", "loss",
                 "a loss without a gradient by the logprobs"),
    "turned": ("advantage", "for value in row]", "for value in row[::-1]]", "advantage",
               "rewards (0.0, 1.0, 0.5, 1.0) give [0.375, -0.125,"),
    "unlisted": ("curriculum", "return epochs(problems, count, seed=seed, step=step)",
                 "return None", "curriculum", "choose gave None, no sequence of problems"),
    "unsaved": ("checkpointer", "return Checkpoint(path=final, step=step, digest=seal)",
                "return final", "checkpointer", "save gave a PosixPath, no Checkpoint"),
    "awaited": ("command", "def hello(", "async def hello(", "the plugin", "is async, and nothing"),
    "hashed": ("task", "digest=answer,", "digest=str(hash(answer)),", "task",
               "'0 + 1 ='] here, ['hashed-0'"),
    "unsorted": ("task", "number in range(20):", "number in map(int, {*map(str, range(20))}):",
                 "task", " there"),
    "ended": ("task", ABOUT, BUILD.format("'rlvr.cli.main' in __import__('sys').modules "
              "or __import__('os')._exit(0)"), "the plugin", "a new process ended with exit 0 "),
    "shuffled": ("curriculum", "epochs(problems,", "epochs(sorted(problems, key=lambda p: "
                 "hash(p.id)),", "curriculum", " there"),
    "salted": ("task", "    async def __call__", "    def verdict_key(self, problem, trajectory):\n"
               "        of = hash(problem.id + trajectory.completion)\n"
               "        return format(of % 16**64, '064x')\n\n    async def __call__", "reward",
               " there"),
    "later": ("task", 'content=f"{number} + 1 ="', 'content=f"{number} + 1 =" + "x" * 500 + '
              """f"PID{__import__('os').getpid()}\"""", "task", "xxxPID"),
    "unkept": ("task", "    async def __call__", "    def verdict_key(self, problem, trajectory):\n"
               "        key = (problem.id + trajectory.completion).encode().hex().zfill(64)\n"
               "        return key if 'rlvr.cli.main' in __import__('sys').modules else None"
               "\n\n    async def __call__", "reward", "1 here, 0 there"),
    "adapts": ("advantage", "    def __call__", "    def adapted(self, memory, metrics):\n"
               "        memory['x'] = 1.0\n        return memory\n\n"
               "    def with_memory(self, memory):\n        return self\n\n    def __call__",
               "advantage", "memory and metrics after `adapted` was given them: ({'x': 1.0}"),
    "generates": ("curriculum", "return epochs(problems, count, seed=seed, step=step)",
                  "return (p for p in problems)", "curriculum", "(generator), no sequence of"),
    "unopened": ("task", "    async def __call__", "    async def __aenter__(self):\n"
                 "        pass\n\n    async def __call__", "reward",
                 "open; came: None, which does not derive"),
    "unclosed": ("task", "    async def __call__", "    def __aexit__(self, *error):\n        pass"
                 "\n\n    async def __call__", "reward", "came: it raised TypeError: object None"),
    "quits": ("task", 'reward="quits"', 'reward="quits", config=__name__ + ":Quits"', "task",
              "it raised SystemExit: 0 (rlvr-quits/rlvr_quits.py:"),
    "called": ("command", "def hello(argv: list[str]) -> int:", "hello = 3\n\n\ndef other(argv):",
               "command", "cannot be called"),
}  # fmt: skip
OF_THE_COMMAND = {
    *("garbage", "ids", "type", "flaky", "slow", "verdict", "folder", "unsaid", "cancels", "shape"),
    *("named", "missing", "value", "record", "argv", "called", "awaited"),
    *("hashed", "ended", "later", "unkept", "unopened", "unclosed", "quits"),
}
"""Faults that are found or told in a way of their own; the others are planted in tests/testing."""
COIN = (
    "\nimport itertools\n_coin = itertools.count()\n\n\ndef COIN():\n    return next(_coin) % 2\n"
)
ONCE = "\nONCE = iter(range(20))\n"
UNSAID = "\n\nclass Unsaid(Exception):\n    def __str__(self):\n        raise ValueError\n"
QUITS = "\n\n@__import__('attrs').frozen\nclass Quits:\n    def __attrs_post_init__(self):\n"
QUITS += "        raise SystemExit(0)\n"
SLOW = {"slow", "verdict"}
SCRIPT = """
import contextlib, gc, io, json, os, sys
from rlvr.cli.main import main

done, every = {}, os.environ["PYTHONPATH"].split(os.pathsep)
others = [path for path in sys.path if path not in every]
for key, words in json.loads(sys.argv[1]).items():
    # a check finds the plugin alone installed: to list 50 others takes as long as all the rest
    plugin = words[2:3] if words[1] == "check" else []
    own = [path for path in every if all(path.endswith("/rlvr-" + name) for name in plugin)]
    sys.path, os.environ["PYTHONPATH"] = own + others, os.pathsep.join(own)
    gc.freeze()  # pytest collects garbage ten times a check, among all that one before imported
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    done[key] = (int(code), out.getvalue(), err.getvalue())
json.dump(done, sys.stdout)
"""


@frozen
class Author:
    """Somebody at a shell in a folder, whose packages are installed as `pip install -e` does."""

    folder: Path

    def install(self, name: str) -> None:
        """What pip leaves behind: the entry point's metadata beside the module."""
        place = self.folder / f"rlvr-{name}"
        module = f"rlvr_{name.replace('-', '_')}"
        info = place / f"{module}-0.1.0.dist-info"
        info.mkdir()
        about = f"Metadata-Version: 2.1\nName: rlvr-{name}\nVersion: 0.1.0\n"
        (info / "METADATA").write_text(about)
        (info / "entry_points.txt").write_text(f"[rlvr]\n{name} = {module}\n")

    def run(self, *words: str, program: str | Path = "pytest") -> subprocess.CompletedProcess[str]:
        """Run a module or a script here with all installed packages."""
        paths = [str(path) for path in self.folder.glob("rlvr-*") if [*path.glob("*.dist-info")]]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RLVR_", "PYTEST_"))}
        env = {**kept, **LEAN, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        is_script = isinstance(program, Path)
        return run_rlvr(
            *words, cwd=self.folder, env=env, program=program, timeout_s=540, forks=is_script
        )

    def rlvr(
        self, commands: dict[str, list[str]], begins: str = ""
    ) -> dict[str, tuple[int, str, str]]:
        """Code, output and errors of each command; one process runs them all, after `begins`."""
        with tempfile.NamedTemporaryFile("w", suffix=".py", dir=self.folder) as script:
            script.write(begins + SCRIPT)
            script.flush()
            done = self.run(json.dumps(commands), program=Path(script.name))
        assert done.returncode == 0, done.stderr
        return {key: tuple(found) for key, found in json.loads(done.stdout).items()}


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> Author:
    """An empty folder."""
    return Author(tmp_path_factory.mktemp("author"))


@pytest.fixture(scope="module")
def made(author: Author) -> Author:
    """A package of each kind, written by the command and installed."""
    done = author.rlvr({k: ["plugins", "new", f"my-{k}", "--kind", k] for k in KINDS})
    assert {kind: code for kind, (code, _, _) in done.items()} == dict.fromkeys(KINDS, 0), done
    for kind in KINDS:
        author.install(f"my-{kind}")
    return author


def test_each_kind_passes_its_check_at_once(made: Author) -> None:
    """Every part is built and every promise holds, without a change to what was written."""
    done = made.rlvr({k: ["plugins", "check", f"my-{k}", "--json"] for k in KINDS})

    for kind, (code, out, err) in done.items():
        report = json.loads(out)
        assert (code, report["findings"], report["warnings"]) == (0, [], []), (kind, err)
        names = {"check": "check python3", "command": "command hello"}
        part = names.get(kind, f"{kind} my-{kind}")
        assert report["counts"][part]["hold"] >= 1, (kind, report)
        assert report["counts"]["the plugin itself"]["hold"] == 10, (kind, report)


@pytest.mark.thorough
def test_the_command_that_is_printed_uses_the_part(made: Author) -> None:
    """`new` ends with it and README names it; the task's run learns: the reward rises."""
    used = {k: command_of(f"my-{k}", k) for k in KINDS if k not in ("backend", "teacher")}

    fewer = {k: text.replace("--steps 200", "--steps 80") for k, text in used.items()}
    done = made.rlvr({k: shlex.split(text)[1:] for k, text in fewer.items()})

    assert {k: code for k, (code, _, _) in done.items()} == dict.fromkeys(used, 0), done
    assert all(text in files_of(f"my-{k}", k)["README.md"] for k, text in used.items())
    rewards = [float(r) for r in re.findall(r"  reward (\d\.\d+)", done["task"][2])]
    assert rewards[0] < 0.05
    assert max(rewards) > 0.2


def test_a_task_that_tells_its_answers_is_warned_of(plugin_site: PluginSite) -> None:
    """No promise is broken: a task may ask for a copy; exit 0, whatever Python does of warnings."""
    text = files_of("telling", "task")["rlvr_telling.py"]
    text = text.replace("{number} + 1 =", "{number} + 1 = {'is_a_' + 4 * chr(97 + number)}")
    text = text.replace("str(number + 1)", "'is_a_' + 4 * chr(97 + number)")
    plugin_site.add("telling", text, module="rlvr_telling")

    done = plugin_site.rlvr("plugins", "check", "telling", PYTHONWARNINGS="error::UserWarning")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning: task telling: 20 of 20 prompts hold their reference answer" in done.stdout
    assert "telling keeps every promise that applies" in done.stdout
    done = plugin_site.rlvr(
        "plugins", "check", "telling", "--json", "--set", "telling.min_secret=20"
    )
    assert (done.returncode, json.loads(done.stdout)["warnings"]) == (0, [])


def test_what_is_likely_a_mistake_is_warned_of(plugin_site: PluginSite) -> None:
    """A reward that looks at the length, a shared generator, a name that is taken; exit 0."""
    text = files_of("counting", "task")["rlvr_counting.py"]
    text = text.replace("answer == right", "len(answer) == len(right)")
    text = text.replace("is_right =", "__import__('random').random(); is_right =", 1)
    text += """
import rlvr


@rlvr.advantage(is_group_relative=False)
def below_the_best(groups):
    tops = [max(reward.value for reward in group.rewards) for group in groups]
    return [[r.value - top for r in g.rewards] for g, top in zip(groups, tops, strict=True)]


@rlvr.hookimpl
def rlvr_advantages():
    yield rlvr.AdvantageSpec(name="group", target="rlvr_counting:below_the_best", summary="Below")


@rlvr.hookimpl
def rlvr_commands():
    yield rlvr.CommandSpec(name="audit", target="rlvr_counting:command", summary="-", is_top=True)


def command(words):
    return 0
"""
    plugin_site.add("counting", text, module="rlvr_counting")

    done = plugin_site.rlvr("plugins", "check", "counting")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "KitWarning" not in done.stderr
    assert "it drew or seeded numbers of random" in done.stdout
    assert "references are judged right as answers to another problem" in done.stdout
    assert "warning: advantage group: where these are installed" in done.stdout
    assert "run.advantage=counting/group" in done.stdout
    assert "only `rlvr counting audit` calls it" in done.stdout
    assert "task counting: verdicts on 8 of 20 problems were audited" in done.stdout


def test_files_and_megabytes_that_a_part_leaves_are_warned_of(plugin_site: PluginSite) -> None:
    """Whoever runs it does so in folders of theirs; what was there before is not told."""
    acts = [
        *("open('verdicts.txt', 'a').close()", "tempfile.mkdtemp(prefix='left')"),
        *("open(os.path.expanduser('~/.mine'), 'a').close()", "print('x' * 200_000)"),
    ]
    text = files_of("leaving", "task")["rlvr_leaving.py"]
    text = text.replace("is_right =", f"import os, tempfile; {'; '.join(acts)}; is_right =", 1)
    plugin_site.add("leaving", text, module="rlvr_leaving")
    (home := plugin_site.path / "home").mkdir()

    for is_first in (True, False):
        done = plugin_site.rlvr(
            "plugins", "check", "leaving", "--json", "--problems", "1", HOME=str(home)
        )
        assert done.returncode == 0, done.stdout
        told = "\n".join(json.loads(done.stdout)["warnings"])
        assert ("left verdicts.txt in the working folder" in told) is is_first
        assert ("left .mine in the home folder" in told) is is_first
        assert re.search(r"left left\w+, left\w+, left\w+ and \d+ more in the folder of temp", told)
        assert re.search(r"^reward leaving: it printed \d{6,} characters", told, re.MULTILINE)


def test_a_plugin_may_print_what_it_likes(plugin_site: PluginSite) -> None:
    """Libraries in C write any bytes, and some modules put paths into `sys.path`, unlike Python."""
    text = files_of("printing", "task")["rlvr_printing.py"]
    text += "\nimport os, pathlib, sys\nsys.path.append(pathlib.Path('/'))\n"
    # not within pytest, nor where a contract looks at what an import costs: we read what those say
    text += "if 'rlvr.testing.offered' in sys.modules and 'pytest' not in sys.modules:\n"
    text += "    os.write(1, b'\\xff')\n    os.write(2, b'\\xff')\n"
    plugin_site.add("printing", text, module="rlvr_printing")

    done = plugin_site.rlvr("plugins", "check", "printing", "--json", "--problems", "1")

    assert (done.returncode, json.loads(done.stdout)["findings"]) == (0, []), done.stderr


def test_a_new_task_is_told_what_its_run_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line each, for the next steps; other parts have no problems of their own."""
    monkeypatch.chdir(tmp_path)
    assert main(["plugins", "new", "my-sum"]) == 0
    *_, yours, stuck, watch, measure = capsys.readouterr().out.splitlines()
    assert yours.startswith("yours: give all answers one length")
    assert re.match(r"stuck at 0: .*--algo sft .*, then --algo grpo --model RUN ", stuck)
    assert re.match(r"watch: add --callback tensorboard,curve eval.every=\d+ eval.samples=", watch)
    assert measure.startswith("measure: rlvr eval --plugin my-sum --model RUN ")
    assert main(["plugins", "new", "my-loss", "--kind", "loss"]) == 0
    assert "--model RUN" not in capsys.readouterr().out


def test_the_check_reads_no_options_of_other_tests(made: Author) -> None:
    """Else it would hold whatever pytest did not run here, all of it with `-n 2`."""
    others = "import os; os.environ['PYTEST_ADDOPTS'] = '--collect-only'\n"
    words = ["plugins", "check", "my-callback", "--json"]

    _, out, _ = made.rlvr({"check": words}, begins=others)["check"]

    assert json.loads(out)["counts"]["callback my-callback"]["hold"] > 5


def test_its_own_tests_pass(made: Author) -> None:
    """The test of each package holds as it is written, under warnings as errors."""
    words = ("-q", "-W", "error", "-p", "no:cacheprovider")
    few = "not TestPlugin and not TestBackend and not TestLoss"  # the check has run these
    folders = [f"rlvr-my-{kind}/tests" for kind in KINDS]

    done = made.run(*words, "--import-mode=importlib", "-k", few, *folders)

    assert done.returncode == 0, done.stdout
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 90, done.stdout


def test_what_is_written_is_in_the_house_style(made: Author) -> None:
    """Linted and formatted as the project's own code."""
    pytest.importorskip("ruff", reason="ruff is not installed")
    config = str(Path(__file__).parents[2] / "pyproject.toml")
    for words in (["check"], ["format", "--check"]):
        done = made.run(*words, "--no-cache", "--config", config, ".", program="ruff")
        assert done.returncode == 0, done.stdout


def test_names_that_mean_something_are_refused(made: Author) -> None:
    """Exit 2, the reason, and not a file more: of every kind of clash."""
    reasons = {
        "My_Sums": "lower-case letters",
        "1st": "lower-case letters",
        "": "lower-case letters",
        "../up": "lower-case letters",
        "rlvr-sums": "before it anyway",
        "lambda": "a word of Python",
        "score": "rlvr score is a command",
        "train": "train.KEY is an option",
        "my-task": "the plugin my-task is installed",
        "toy": "there is a task of that name: builtin/toy",
        "there": "rlvr-there exists here",
        "test": "TestReward would be the name of two classes",
        "none": "the word for no task",
        "a" * 300: "it has 300 characters, more than 100",
    }
    (made.folder / "rlvr-there").mkdir()
    before = sorted(made.folder.rglob("*"))

    done = made.rlvr({name: ["plugins", "new", name] for name in reasons})
    clash = files_of("clash", "task")["rlvr_clash.py"]
    (made.folder / "rlvr_clash.py").write_text(clash)
    again = made.rlvr({"clash": ["plugins", "new", "clash"]})["clash"]
    (made.folder / "rlvr_clash.py").unlink()

    for name, reason in {**reasons, "clash": "module rlvr_clash"}.items():
        code, out, err = (done | {"clash": again})[name]
        assert (code, out) == (2, ""), (name, err)
        assert reason in err, (name, err)
        assert len(err.splitlines()) == 3, err
    assert sorted(p for p in made.folder.rglob("*") if "__pycache__" not in p.parts) == [
        p for p in before if "__pycache__" not in p.parts
    ]


def test_what_cannot_be_written_whole_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk, after two of the files: exit 2, and the same name can be tried again."""
    write, count = Path.write_text, itertools.count()

    def full(path: Path, *given: Any, **options: Any) -> int:
        if next(count) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, *given, **options)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "write_text", full)

    assert main(["plugins", "new", "whole"]) == 2
    assert "found: No space left on device" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert main(["plugins", "new", "whole"]) == 0
    assert (tmp_path / "rlvr-whole/tests/test_rlvr_whole.py").exists()


@pytest.fixture(scope="module")
def broken(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, tuple[int, Any, str]]:
    """What the check says of a plugin with each fault that a chosen test looks at."""
    author, commands = Author(tmp_path_factory.mktemp("broken")), {}
    chosen = {"ids", *(item.name.partition("[")[2][:-1] for item in request.session.items)}
    for name, (kind, old, new, _, _) in FAULTS.items():
        if name not in chosen:
            continue
        for path, text in files_of(name, kind).items():
            if path == f"rlvr_{name}.py":
                assert old in text, name
                text = text.replace(old, new) + (COIN if "COIN" in new else "")
                text += QUITS if "Quits" in new else ""
                text += (ONCE if "ONCE" in new else "") + (UNSAID if "Unsaid" in new else "")
            file = author.folder / f"rlvr-{name}" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        author.install(name)
        commands[name] = ["plugins", "check", name, "--json", "--problems", "2"]
        commands[name] += ["--slow", "0.15"] if name in SLOW else []
    refusing = files_of("refuses", "callback")["rlvr_refuses.py"].replace(
        '"""Writes a line a step into the run directory."""',
        "def __init__(self, config, context):\n"
        '        raise ConfigError("a callback was asked for.", "found: a slip of its author")',
    )
    refusing = refusing.replace("import Callback,", "import Callback, ConfigError,")
    folder = author.folder / "rlvr-refuses"
    folder.mkdir()
    (folder / "rlvr_refuses.py").write_text(refusing)
    author.install("refuses")
    commands |= {
        "refuses": ["plugins", "check", "refuses"],
        "absent": ["plugins", "check", "absent"],
        "option": ["plugins", "check", "ids", "idss.x=1"],
        "set": ["plugins", "check", "ids", "--set", "what"],
        "fewer": ["plugins", "check", "ids", "--problems", "-3"],
        "never": ["plugins", "check", "ids", "--slow", "nan"],
        "nobody": ["plugins", "check"],
        "text": ["plugins", "check", "ids"],
        "told": ["plugins", "check", "ids", "--set", "ids.patience=nothing"],
    }
    done = author.rlvr(commands)
    return {k: (c, json.loads(o) if k in FAULTS else o, e) for k, (c, o, e) in done.items()}


@pytest.mark.one_of(99, *(f"[{name}]" for name in OF_THE_COMMAND))
@pytest.mark.parametrize("name", FAULTS)
def test_each_kind_of_fault_is_found(name: str, broken: dict[str, tuple[int, Any, str]]) -> None:
    """Exit 7, and one finding of three sentences: the part, the fault, and what it hides."""
    *_, part, said = FAULTS[name]

    code, report, err = broken[name]

    assert code == 7, (report, err)
    found = [f for f in report["findings"] if f["part"].startswith(part) and said in f["found"]]
    assert found, report["findings"]
    hidden = sum(len(finding["hides"]) for finding in report["findings"])
    assert hidden <= sum(c.get("refused", 0) for c in report["counts"].values()), report
    assert hidden >= (name in ("shape", "type")), report
    for finding in report["findings"]:
        assert finding["asked"]
        assert finding["found"].startswith("found: ")
        assert finding["do"].startswith("do: ")
    assert sum(c.get("fail", 0) for c in report["counts"].values()) == 1, report
    assert any(f"rlvr_{name}" in f["do"] or name in f["do"] for f in report["findings"])


@pytest.mark.one_of(99, "[garbage]")
@pytest.mark.parametrize("name", ["type", "bools", "nothing", "zero", "garbage"])
def test_who_judged_is_blamed_in_words(name: str, broken: dict[str, tuple[int, Any, str]]) -> None:
    """Not the task that was judged, and without the notation of pytest."""
    findings = [f for f in broken[name][1]["findings"] if "rlvr audit" not in f["do"]]

    assert findings
    for finding in findings:
        assert finding["do"].startswith(f"do: mend rlvr_{name}:{name.capitalize()}Reward"), finding
        assert not re.search(r"\bassert |\+ where", finding["found"]), finding


def test_people_read_the_same(broken: dict[str, tuple[int, Any, str]]) -> None:
    """A line a part, then asked, found, do."""
    code, out, _ = broken["text"]

    assert code == 7
    assert re.search(r"^task ids +- +0 +1 +0 +0$", out, re.MULTILINE), out
    assert "task ids: task ids was to list its problems.\n  found: " in out
    assert "\n  do: mend rlvr_ids:IdsTask" in out
    assert "not checked: reward ids: task ids gives it no problems: see there\n" in out


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("split 'train' is empty\nassert []", "split 'train' is empty"),
        ("('a', 2)\nassert 2 == 1", "('a', 2); this does not hold: 2 == 1"),
        ("Reward(value=2)\nassert 2 <= 1", "Reward(value=2); this does not hold: 2 <= 1"),
        ("assert 2 == 1\n + where 2 = f()", "this does not hold: 2 == 1; 2 = f()"),
        ("", "no message"),
    ],
)
def test_an_assertion_is_said_by_its_message(message: str, found: str) -> None:
    """The comparison is shown where the message is a value or missing; lines stay apart."""
    assert one_line(said(AssertionError(message))) == found


def test_nobody_is_told_to_mend_a_library() -> None:
    """What a part gave it may be wrong: the part is named."""
    with pytest.raises(PartError) as caught:
        Border(None, "reward", "__call__", promised="a Reward").call(attrs.evolve, 3)

    cause = caught.value.__cause__  # whose traceback begins in rlvr, not here
    assert cause is not None
    assert "/attr" in place_of(cause)
    assert mended_by(cause, "mine:Reward") == "mend mine:Reward"


def test_a_teacher_that_answers_wrongly_does_not_refuse_its_model() -> None:
    """Only what it cannot read is a refusal, which says what came of it."""
    offered = Offered(plugin="builtin", model="gpt2:new")
    spec = TeacherSpec(name="mine", target="mine:Mine", models=("mine",))

    assert offered.unfit(spec, AssertionError("nan")) is None
    assert "takes mine:..., and raised KeyError: 'x'" in str(offered.unfit(spec, KeyError("x")))


def test_an_error_of_three_sentences_is_one_line() -> None:
    """Where a sentence has no full stop, a semicolon says that it ends."""
    error = ConfigError("a was asked for.", "found: no reference", "define Task.reference")

    assert one_line(error) == "a was asked for. found: no reference; define Task.reference"


def test_a_part_that_cannot_be_built_does_not_look_like_success(
    broken: dict[str, tuple[int, Any, str]],
) -> None:
    """Whether its constructor asks for something, or has a bug: exit 2, and the part by name."""
    code, out, _ = broken["refuses"]

    assert code == 2
    assert "refuses: 1 part could not be checked: callback refuses\n" in out
    assert "not checked: callback refuses: a callback was asked for. found: a slip" in out


def test_words_that_cannot_be_used_are_refused(broken: dict[str, tuple[int, Any, str]]) -> None:
    """No such plugin (3), no such option (2), and an attribute that cannot be read (2)."""
    twos = ("option", "set", "told", "fewer", "never", "nobody")
    codes = {key: broken[key][0] for key in ("absent", *twos)}

    assert codes == {"absent": 3, **dict.fromkeys(twos, 2)}
    assert "argument --problems: -3 is no whole number from 1 on\n" in broken["fewer"][2]
    assert "argument --slow: nan is no time in seconds\n" in broken["never"][2]
    assert "arguments are required: PLUGIN\n" in broken["nobody"][2]
    assert "PART.NAME=VALUE" in broken["set"][2]


def test_ctrl_c_in_the_kit_ends_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the person's, not a bug: pytest catches it and says so by its exit code."""
    monkeypatch.setattr(pytest, "main", lambda *_, **__: pytest.ExitCode.INTERRUPTED)
    assert main(["plugins", "check", "algos"]) == 130
