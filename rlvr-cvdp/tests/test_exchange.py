"""Files of the official runner's local models: prompts out, completions in, samples across."""

from __future__ import annotations

import json

import pytest

from rlvr import ConfigError
from rlvr.evaluation.answers_file import read_answers
from rlvr.testing.tools import shared_data
from rlvr_cvdp.commands.calibrate import calibrate
from rlvr_cvdp.commands.exchange import completion_lines, export_prompts, import_completions


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def agentic(bench):
    return bench.agentic_row(
        id="cvdp_agentic_inc_0002",
        system_message="never sent",
        context={"docs/spec.md": "Adds one."},
        patch={"rtl/inc.sv": "", "rtl/two.sv": ""},
    )


def test_export(bench, tmp_path, capsys):
    """One object a problem, both forms: id, system, user, and both together as the prompt."""
    commercial = bench.row(id="c_0001", harness={"Dockerfile": "FROM __VERIF_EDA_IMAGE__"})
    path = bench.dataset(bench.row(), agentic(bench), commercial)
    out = tmp_path / "prompts.jsonl"
    assert export_prompts(["--dataset", str(path), "--out", str(out)]) == 0
    one, two = lines(out)
    assert [one["id"], two["id"]] == ["cvdp_copilot_inc_0001", "cvdp_agentic_inc_0002"]
    for line in (one, two):
        assert set(line) == {"id", "prompt", "system", "user"}
        assert line["prompt"] == f"{line['system']}\n\n{line['user']}"
        assert "never sent" not in line["prompt"]
    assert "Your response will be saved directly to: rtl/inc.sv." in one["user"]
    assert "Name the files as: ['rtl/inc.sv', 'rtl/two.sv']." in two["user"]
    assert "1 unverifiable row left out" in capsys.readouterr().err


def test_export_within_a_budget(bench, tmp_path):
    """`--max-prompt-tokens` cuts as a run would."""
    path = bench.dataset(bench.row(context={"docs/long.md": "Nothing at all.\n\n" * 500}))
    out = tmp_path / "prompts.jsonl"
    export_prompts(["--dataset", str(path), "--out", str(out), "--max-prompt-tokens", "400"])
    assert "lines cut]" in lines(out)[0]["user"]


def test_every_official_example_is_exported(tmp_path):
    """The published files of each version give one prompt a problem."""
    for path in sorted(shared_data("cvdp", "official_examples").glob("*_no_commercial*.jsonl")):
        out = tmp_path / path.name
        assert export_prompts(["--dataset", str(path), "--out", str(out)]) == 0
        assert len(lines(out)) == len(path.read_text().splitlines())


def test_import_of_samples(tmp_path, capsys):
    """Samples of an evaluation become completions, several of a problem in their order."""
    records = [
        {"id": "a", "index": 0, "segments": [{"author": "prompt", "text": "?"},
                                             {"author": "policy", "text": "first"}]},
        {"id": "a", "index": 1, "segments": [{"author": "policy", "text": "draft"},
                                             {"author": "env", "text": "no"},
                                             {"author": "policy", "text": "second"}]},
        {"id": "b", "completion": "third"},
    ]  # fmt: skip
    source, out = tmp_path / "samples.jsonl", tmp_path / "responses.jsonl"
    source.write_text("".join(json.dumps(r) + "\n" for r in records) + "{\n\n[]\n")
    assert import_completions(["--completions", str(source), "--out", str(out)]) == 0
    assert lines(out) == [
        {"id": "a", "completion": "first"},
        {"id": "a", "completion": "second"},
        {"id": "b", "completion": "third"},
    ]
    said = capsys.readouterr().err
    assert "line 4: no id and completion" in said
    assert "3 completions, 2 lines left out" in said


@pytest.mark.parametrize(
    "files",
    [
        {"rtl/a.sv": "module a; endmodule\n"},
        {"rtl/a.sv": "module a; // x\nendmodule\n", "rtl/b.sv": 'initial $display("\\n");\n'},
    ],
)
def test_answers_as_files_are_read_back(files):
    """What was given as files is written so that the official reading gives the same files."""
    from rlvr_cvdp.answers.official import official_files

    (line,) = completion_lines([json.dumps({"id": "a", "files": files})], [])
    back = official_files(line["completion"], tuple(files))
    assert {path: text.strip() for path, text in back.items()} == {
        path: text.strip() for path, text in files.items()
    }


def test_files_that_are_not_there(tmp_path):
    """A path that cannot be read or written is said in words."""
    with pytest.raises(ConfigError, match="completions were to be read"):
        import_completions(["--completions", str(tmp_path / "nowhere")])
    source = tmp_path / "s.jsonl"
    source.write_text('{"id": "a", "completion": "b"}\n')
    with pytest.raises(ConfigError, match="was to be written"):
        import_completions(["--completions", str(source), "--out", str(tmp_path / "no" / "x")])


@pytest.mark.parametrize("content", ["", "\n \n", "[]", "id,completion"])
def test_nothing_to_write_is_said(content, tmp_path):
    """No problem, no completion: a mistake of the caller, and no empty file."""
    (tmp_path / "s").write_text(content)
    for command, flag in ((import_completions, "--completions"), (export_prompts, "--dataset")):
        with pytest.raises(ConfigError, match="found: no"):
            command([flag, str(tmp_path / "s"), "--out", str(tmp_path / "x")])
    with pytest.raises(ConfigError, match="found: no problem in "):
        calibrate(["--dataset", str(tmp_path / "s"), "--out", str(tmp_path / "x")])
    assert not (tmp_path / "x").exists()


def test_several_completions_of_a_problem_are_scored_each(bench, tmp_path):
    """A local_import file with several samples: one answer a line, in the order of the file."""
    task = bench.task(bench.row(id="a_0001"), bench.row(id="b_0001"))
    problems = {problem.id: problem for problem in task.problems("all")}
    path = tmp_path / "responses.jsonl"
    names = ["a_0001", "b_0001", "a_0001", "c_0001", "a_0001"]
    path.write_text(
        "".join(json.dumps({"id": n, "completion": f"x{i}"}) + "\n" for i, n in enumerate(names))
    )
    answers = list(read_answers(str(path), problems, {}))
    assert [answer.id for answer in answers] == names
    texts = [a.trajectory.completion for a in answers if a.trajectory is not None]
    assert texts == ["x0", "x1", "x2", "x4"]
    assert "line 4: no problem 'c_0001'" in answers[3].error
