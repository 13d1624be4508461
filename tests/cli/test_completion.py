"""`rlvr completion`: the shells themselves say what they complete."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import redirect_stdout

import pytest

from rlvr.cli.completion import SHELLS
from rlvr.cli.main import COMMANDS, main
from rlvr.plugins.host import PluginHost

pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """Shell to the file of its script."""
    folder = tmp_path_factory.mktemp("scripts")
    for shell in SHELLS:
        with (folder / shell).open("w") as file, redirect_stdout(file):
            assert main(["completion", shell]) == 0
    return {shell: folder / shell for shell in SHELLS}


def _asked(shell, code):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: apt-get install {shell}")
    done = subprocess.run([shell, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def in_bash(path, *words):
    """What bash offers for the last of the words, which may be empty."""
    typed = " ".join(f"'{word}'" for word in words)
    return _asked(
        "bash",
        f"source {path}; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; "
        "$(complete -p rlvr | sed 's/.*-F \\([^ ]*\\).*/\\1/') rlvr; "
        "printf '%s\\n' \"${COMPREPLY[@]}\"",
    )


def test_bash_completes_commands_flags_and_names(scripts, tmp_path):
    """Commands of rlvr and of plugins, their verbs, flags, names of parts, and files."""
    path = scripts["bash"]
    (tmp_path / "mine.jsonl").touch()

    assert set(in_bash(path, "rlvr", "")) >= {*COMMANDS}
    assert in_bash(path, "rlvr", "resc") == ["rescore"]
    assert in_bash(path, "rlvr", "runs", "") == ["list", "show", "compare", "trace"]
    assert "export" in in_bash(path, "rlvr", "torch", "")
    assert in_bash(path, "rlvr", "run", "--curr") == ["--curriculum"]
    assert {"builtin", "toy"} <= set(in_bash(path, "rlvr", "run", "--plugin", ""))
    assert "torch" not in in_bash(path, "rlvr", "run", "--plugin", "")
    assert "torch" in in_bash(path, "rlvr", "doctor", "--plugin", "")
    assert in_bash(path, "rlvr", "run", "--curriculum", "pass") == ["pass-rate"]
    presets = {name for task in PluginHost.load().tasks() for name in task.presets}
    assert {*in_bash(path, "rlvr", "run", "--preset", "")} == presets
    assert "builtin" in in_bash(path, "rlvr", "plugins", "show", "")
    assert in_bash(path, "rlvr", "plugins", "check", "built") == ["builtin"]
    (tmp_path / "runs").mkdir()
    assert in_bash(path, "rlvr", "run", "--resume", f"{tmp_path}/") == [f"{tmp_path}/runs"]
    assert in_bash(path, "rlvr", "score", "--dataset", f"{tmp_path}/m") == [
        f"{tmp_path}/mine.jsonl"
    ]
    assert in_bash(path, "rlvr", "eval", "--against", f"{tmp_path}/r") == [f"{tmp_path}/runs"]


def test_bash_offers_the_flags_that_plugins_commands_take(scripts, capsys):
    """Those that the help of each command lists, and no others."""
    listed, offered = {}, {}
    for command in PluginHost.load().commands():
        words = [command.provider, command.name]
        main([*words, "--help"])
        flags = re.findall(r"^  (?:-.*?, )?(--[\w-]+)", capsys.readouterr().out, re.MULTILINE)
        for called in (words, words[1:]) if command.is_top else (words,):
            listed[*called] = flags
            offered[*called] = in_bash(scripts["bash"], "rlvr", *called, "--")

    assert offered == listed
    assert "--merge" in offered["torch", "export"]
    assert in_bash(scripts["bash"], "rlvr", "torch", "-") == ["-h", "--help"]


def test_fish_completes_commands_flags_and_names(scripts):
    """The same in fish, which prints `word<TAB>summary`."""

    def asked(typed):
        lines = _asked("fish", f"source {scripts['fish']}; complete -C '{typed}'")
        return {line.partition("\t")[0] for line in lines}

    assert asked("rlvr resc") == {"rescore"}
    assert asked("rlvr run --curr") == {"--curriculum"}
    assert "pass-rate" in asked("rlvr run --curriculum ")
    assert asked("rlvr torch export --mer") == {"--merge"}


ZSH = """
zpty shell zsh -f -i
typed() { zpty -w -n shell "$1" }
seen() { local text; zpty -r shell text "*$1"; print -r -- "$text" }
typed $'PS1=; autoload -Uz compinit; compinit -u -D; eval "$(<SCRIPT)"\n'
typed $'show() { print -r -- "<""$BUFFER"">"; BUFFER=; zle redisplay }; zle -N show\n'
typed $'bindkey "^X" show; setopt no_beep; print re""ady\n'
seen ready
for words in "$@"; do typed "$words"$'\t\x18'; seen '>'; done
"""
"""Words, a tab, and a key that prints the line, in a zsh with a terminal of its own."""


def test_zsh_completes_commands_flags_and_names(scripts):
    """The same in an interactive zsh, set up as `rlvr completion --help` says."""
    file = str(scripts["zsh"])
    wanted = {
        "rlvr resc": "rlvr rescore",
        "rlvr run --curr\t": "rlvr run --curriculum",  # the first tab tells what it is for
        "rlvr run --curriculum pass": "rlvr run --curriculum pass-rate",
        "rlvr run --plugin built": "rlvr run --plugin builtin",
        "rlvr torch exp": "rlvr torch export",
        "rlvr torch export --mer\t": "rlvr torch export --merge",
        f"rlvr score --dataset {file[:-1]}": f"rlvr score --dataset {file}",
    }
    typed = " ".join(f"'{words}'" for words in wanted)
    code = f"zmodload zsh/zpty; set -- {typed}" + ZSH.replace("SCRIPT", file)
    found = "\n".join(_asked("zsh", code)).replace("\r", "")

    assert [line.rstrip() for line in re.findall(r"<([^\"].*?)>", found)] == [*wanted.values()], (
        found
    )


def test_every_script_names_every_command(scripts):
    """Whatever shells are installed here."""
    for path in scripts.values():
        text = path.read_text()
        assert all(command in text for command in COMMANDS), path
        assert "merge" in text, path


def test_commands_of_one_name_are_completed_as_they_are_called(plugin_site):
    """A plugin's own word that is its own name, another plugin's, or a command of rlvr."""
    plugin_site.add("endless", "RLVR_API = 1\nwhile True:\n    pass\n")  # no shell waits for it
    for plugin in ("mine", "yours", "score"):
        names = ("mine", "yours", "score", "same")
        plugin_site.add(plugin, f"""
            from rlvr import CommandSpec, hookimpl

            RLVR_API = 1

            @hookimpl
            def rlvr_commands():
                for name in {names}:
                    yield CommandSpec(name=name, target="json:dumps", summary="x", is_top=True)
        """)  # fmt: skip

    done = plugin_site.rlvr("completion", "bash")

    assert done.returncode == 0, done.stderr
    assert "rlvr: the plugin endless is left out: during its import it did" in done.stderr
    path = plugin_site.home / "bash"
    path.write_text(done.stdout)
    words = in_bash(path, "rlvr", "")
    assert sorted(words) == sorted({*words})
    assert {"mine", "yours", "score", "same"} <= {*words}
    assert "same" in in_bash(path, "rlvr", "yours", "")


COMMANDS_OF_MINE = """
    import argparse, atexit, os, sys
    from rlvr import CommandSpec, hookimpl

    RLVR_API = 1

    @hookimpl
    def rlvr_commands():
        for name in {names}:
            yield CommandSpec(name=name, target=f"{{__name__}}:{{name}}", summary="x")

    def tool(argv):
        before = argparse.ArgumentParser(add_help=False)
        before.add_argument("--config", metavar="FILE")
        before.parse_known_args(argv)
        parser = argparse.ArgumentParser(parents=[before])
        parser.add_argument("--at", metavar="HOST:PORT")
        verbs = parser.add_subparsers(required=True)
        verbs.add_parser("show").add_argument("--level", choices=("low", "high", "$(id)", "it's"))
        verbs.add_parser("write").add_argument("--force", action="store_true")
        parser.parse_args(argv)

    def plain(argv):
        print("PRINTED")
        os.system("echo PRINTED")
        sys.__stdout__.write("PRINTED")
        atexit.register(print, "PRINTED")

    def fails(argv):
        print("PRINTED")
        raise RuntimeError("no such luck")

    def hangs(argv):
        while True:
            pass

    def ends(argv):
        os._exit(0)

    def odd(argv):
        parser = argparse.ArgumentParser()
        parser.add_argument("word", choices=(1, "one"), help="shtab cannot sort these")
        parser.parse_args(argv)
"""


def test_flags_of_a_plugins_command_and_of_its_subcommands(plugin_site):
    """Those of the parser whose help it prints, with their words."""
    plugin_site.add("mine", COMMANDS_OF_MINE.format(names=["tool"]))
    paths = {shell: plugin_site.home / shell for shell in SHELLS}
    for shell, path in paths.items():
        path.write_text(plugin_site.rlvr("completion", shell).stdout)
    tool = (paths["bash"], "rlvr", "mine", "tool")

    assert in_bash(*tool, "--") == ["--help", "--config", "--at"]
    assert in_bash(*tool, "") == ["show", "write"]
    assert in_bash(*tool, "show", "--") == ["--help", "--level"]
    assert in_bash(*tool, "show", "--level", "") == ["low", "high"]
    assert in_bash(*tool, "write", "--f") == ["--force"]
    assert in_bash(*tool, "--config", f"{plugin_site.home}/ba") == [str(paths["bash"])]
    assert '"--level[level]:level:(low high)"' in paths["zsh"].read_text()
    assert ":HOST:PORT:" not in paths["zsh"].read_text()  # zsh would call PORT
    assert " -l level -xka " in paths["fish"].read_text()


def test_a_plugins_command_without_a_parser_spoils_no_script(plugin_site):
    """It prints, fails, hangs, ends the process, or has a parser that shtab cannot write."""
    names = ["plain", "fails", "hangs", "ends", "odd"]
    plugin_site.add("mine", COMMANDS_OF_MINE.format(names=[*names, "tool"]))

    done = plugin_site.rlvr("completion", "bash", PYTHONUNBUFFERED="")

    assert done.returncode == 0, done.stderr
    assert "PRINTED" not in done.stdout
    left_out = dict(re.findall("the flags of mine (.*?) are left out: (.*)", done.stderr))
    assert [*left_out] == ["hangs", "ends", "fails", "odd"], done.stderr
    assert "RuntimeError: no such luck" in left_out["fails"]
    path = plugin_site.home / "bash"
    path.write_text(done.stdout)
    for name in names:
        assert in_bash(path, "rlvr", "mine", name, "--") == ["--help"]
    assert in_bash(path, "rlvr", "mine", "tool", "--c") == ["--config"]


def test_without_shtab_the_message_says_what_to_install(plugin_site):
    """Its extra of rlvr, by this environment's installer; exit 4."""
    (plugin_site.path / "shtab.py").write_text("raise ImportError('not here')\n")

    done = plugin_site.rlvr("completion", "bash")

    assert done.returncode == 4
    assert "[completion]" in done.stderr
    assert "install" in done.stderr
