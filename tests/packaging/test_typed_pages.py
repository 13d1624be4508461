"""Pages that build something are typed, word by word, into an empty folder beside the clone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import frozen

from tests.packaging.conftest import PIP

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (
    "../README.md#A whole plugin",
    "tutorial/first-task-plugin.md",
    "how-to/write-a-checkpointer.md",
    "how-to/write-a-curriculum.md",
    "how-to/write-a-loss.md",
    "how-to/write-a-reward.md",
    "how-to/write-an-advantage.md",
)
LEFT = {
    "how-to/write-a-checkpointer.md": {"zipped": ""},
    "how-to/write-a-curriculum.md": {"run.json": '"curriculum.label": "family"'},
    "how-to/write-a-loss.md": {"metrics.jsonl": "capped/share"},
    "how-to/write-an-advantage.md": {"metrics.jsonl": "ranked/credit"},
}
"""What the run of a page leaves by which one sees that the page's part was used."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VENV = "python3 -m venv try-rlvr"
LONG = re.compile(r"--steps \d\d\b")
NAMED = re.compile(r"^`([\w./-]+)`$")


@frozen
class Typed:
    """A block of a page: a file to write, commands to run, or what they print."""

    kind: str
    text: str
    name: str = ""


def blocks(page: str) -> Iterator[Typed]:
    """
    What a reader does with the page's blocks, in order.

    A file's name is a line of its own in code marks before the block, or its first line, as a
    comment. Any other block is a fault of the page. `...` in an output stands for anything.
    """
    for match in BLOCK.finditer(page):
        language, body = match.groups()
        if language == "sh":
            yield Typed("commands", body)
        elif language == "text":
            yield Typed("output", body)
        else:
            before = re.sub(r"<!-- file: \S+ -->\s*$", "", page[: match.start()])
            named = NAMED.match((before.strip().splitlines() or [""])[-1])
            first, _, rest = body.partition("\n")
            if named:
                yield Typed("file", body, named[1])
            elif re.fullmatch(r"# [\w./-]+\.\w+", first):
                yield Typed("file", rest, first.removeprefix("# "))
            else:
                line = page[: match.start()].count("\n") + 1
                raise AssertionError(f"line {line}: nobody can tell where this block goes")


class Reader:
    """
    Somebody at a shell in an empty folder; `../rlvr` is the clone.

    The block with which several pages begin runs once, and so does the one that makes the virtual
    environment: later pages find what they left, at its own place, as it cannot be moved. Its pip
    is this Python's: to unpack one takes as long as the run. A run of more than ten steps has
    three: tests/learning shows that such runs learn.
    """

    def __init__(self, tmp_path: Path, borrowed: Path) -> None:
        self.folder, self.state = tmp_path / "mine", tmp_path / "state"
        self.kept: dict[str, tuple[Path, str, str]] = {}
        self.venv = tmp_path / "venv"
        (tmp_path / "rlvr").symlink_to(ROOT)
        base = Path(sys.base_prefix) / "bin"
        kept = ("HOME", "LANG", "TMPDIR", "XDG_CACHE_HOME")
        self.environment = {name: os.environ[name] for name in kept if name in os.environ} | {
            "PATH": f"{base}:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": str(borrowed),
            "PIP_NO_INDEX": "1",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_BUILD_ISOLATION": "0",  # pip reads it as the value of build_isolation
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "OMP_NUM_THREADS": "1",
            "PYTEST_ADDOPTS": "-W error",  # what a reader sees must not warn either
            "STATE": str(self.state),
        }

    def begin(self, first: Typed) -> str:
        """Empty the folder, then run the commands or put there what they left; their output."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if first.text in self.kept:
            copy, state, printed = self.kept[first.text]
            _copy(copy, self.folder)
            self.state.write_text(state, encoding="utf-8")
            return printed
        self.folder.mkdir()
        self.state.write_text("", encoding="utf-8")
        printed = self.do(first, "")
        if first.kind != "commands":
            return printed
        copy = self.folder.with_name(f"kept{len(self.kept)}")
        _copy(self.folder, copy)
        self.kept[first.text] = copy, self.state.read_text(encoding="utf-8"), printed
        return printed

    def do(self, typed: Typed, printed: str) -> str:
        """Write the file, or run the commands and give what they print."""
        if typed.kind == "file":
            path = self.folder / typed.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(typed.text, encoding="utf-8")
            return ""
        if typed.kind == "output":
            for line in typed.text.splitlines():
                pattern = ".*".join(map(re.escape, line.split("...")))
                found = re.search(f"^{pattern}$", printed, re.MULTILINE)
                assert found, f"the page shows\n{line}\nit was\n{printed}"
            return printed
        text = LONG.sub("--steps 3", typed.text)
        if text.startswith(VENV):
            text = text.replace(VENV, "true", 1)
            if not self.venv.exists():
                self._shell(f"{VENV} --without-pip")
                self._lend_pip(self.folder / "try-rlvr")
                _copy(self.folder / "try-rlvr", self.venv)
            else:
                _copy(self.venv, self.folder / "try-rlvr")
        return self._shell(text)

    @staticmethod
    def _lend_pip(venv: Path) -> None:
        (site,) = venv.glob("lib/*/site-packages")
        for path in PIP.parent.glob("pip*"):
            (site / path.name).symlink_to(path)
        program = venv / "bin/pip"
        program.write_text(
            f"#!{venv}/bin/python3\nfrom pip._internal.cli.main import main\nmain()\n"
        )
        program.chmod(0o755)

    def _shell(self, text: str) -> str:
        # variables and folder stay from block to block, as in one terminal
        keep = 'status=$?; { export -p; printf "cd %q" "$PWD"; } > "$STATE"; exit $status'
        script = f'. "$STATE"\n{text}\n{keep}'
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"$ {text}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def _copy(folder: Path, to: Path) -> None:
    """Files are links to the same content: pip replaces files, and writes into none."""
    shutil.copytree(folder, to, symlinks=True, copy_function=os.link)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, borrowed: Path) -> Reader:
    """Reads all pages, one after the other."""
    return Reader(tmp_path_factory.mktemp("reader"), borrowed)


@pytest.mark.one_of(99, "first-task-plugin", "README")
@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_typed_into_an_empty_folder(page: str, reader: Reader) -> None:
    """Every file is written and every command run, in order; its part is what the run used."""
    path, _, section = page.partition("#")
    text = (DOCS / path).read_text(encoding="utf-8")
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    todo = list(blocks(text))
    printed = reader.begin(todo[0])
    for typed in todo[1:]:
        printed = reader.do(typed, printed)
        assert "-m pytest" not in typed.text or re.search(r"\d\d passed", printed), printed

    assert {typed.kind for typed in todo} >= {"file", "commands"}
    for file, said in LEFT.get(page, {}).items():
        (found,) = reader.folder.glob(f"runs/*/{file}")
        assert found.is_dir() or said in found.read_text(encoding="utf-8")


def test_a_block_that_goes_nowhere_is_a_fault() -> None:
    """A file without a name is found, and so is the line where it stands."""
    with pytest.raises(AssertionError, match="line 3: nobody can tell"):
        list(blocks("Put this somewhere:\n\n```python\nx = 1\n```\n"))
