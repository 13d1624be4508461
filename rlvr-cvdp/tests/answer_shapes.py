"""Answers in the shapes that chat models give them, each with the files that it must become.

The shapes follow public material: chat transcripts and model cards (fences, thinking tags), the
prompts and parsers of aider, Cline, Cursor, bolt, Codex, Qwen-Agent and gpt-oss, VerilogEval's
[BEGIN] and [DONE], and the official runner's JSON. `{A}` and the like stand for the code below.
"""

from __future__ import annotations

import json

A = """\
module alu (
    input  logic [7:0] a,
    output logic [7:0] y
);
  assign y = a + 8'd1;
endmodule
"""
DRAFT = A.replace("+ 8'd1", "- 8'd1")
B = """\
module mul (
    input  logic [7:0] a,
    output logic [7:0] y
);
  assign y = a * 8'd3;
endmodule
"""
USES = """\
module alu (
    input  logic [7:0] a,
    output logic [7:0] y
);
  inc_one u_inc (.a(a), .y(y));
endmodule
"""
HELPER = """\
module inc_one (
    input  logic [7:0] a,
    output logic [7:0] y
);
  assign y = a + 8'd1;
endmodule
"""
BENCH = """\
`timescale 1ns/1ps
module tb_alu;
  logic [7:0] a, y;
  alu dut (.a(a), .y(y));
  initial begin a = 1; #1 if (y !== 2) $display("FAIL"); $finish; end
endmodule
"""
PACKAGE = "package alu_pkg;\n  localparam int ONE = 1;\nendpackage\n"
IMPORTS = A.replace("module alu (", "module alu import alu_pkg::*; (").replace("8'd1", "ONE")
SNIPPET = "  assign y = a + 8'd1;\n"
QUOTED = A.replace("endmodule", '  initial $display("alu, \\"v1\\"", a);\nendmodule')
RAW_QUOTED = A.replace("endmodule", '  initial $display("alu", "v1", a);\nendmodule')
FUNCTION = "function automatic int twice(int x);\n  return 2 * x;\nendfunction\n"
STRUCT = "typedef struct packed {\n  byte low;\n} pair_t;\n"
FENCED = "// Use:\n// ```\n// alu u (.a(x), .y(z));\n// ```\n" + A
INDEXED = A.replace("a + 8'd1", "a[INST] ? a : memory[THINK]")
ONE = ("rtl/alu.sv",)
TWO = ("rtl/alu.sv", "rtl/mul.sv")


def fence(text: str, info: str = "verilog", mark: str = "```") -> str:
    """A fenced block."""
    return f"{mark}{info}\n{text}{mark}\n"


def indented(text: str, by: str) -> str:
    """The text, each line of it further to the right."""
    return "".join(by + line for line in text.splitlines(keepends=True))


def escaped(text: str) -> str:
    """The text as it stands inside of a JSON string."""
    return json.dumps(text)[1:-1]


BOTH = {"rtl/alu.sv": A, "rtl/mul.sv": B}
ONLY = {"rtl/alu.sv": A}
JOINED = {"rtl/alu.sv": USES + "\n" + HELPER}
PACKED = {"rtl/alu.sv": PACKAGE + "\n" + IMPORTS}

SHAPES: dict[str, tuple[tuple[str, ...], str, dict[str, str]]] = {
    # -- one file: fences
    "bare fence": (ONE, fence(A, ""), ONLY),
    "verilog fence with prose around": (
        ONE,
        f"Sure! Here it is:\n\n{fence(A)}\nIt adds one.",
        ONLY,
    ),
    "systemverilog fence": (ONE, fence(A, "systemverilog"), ONLY),
    "sv fence": (ONE, fence(A, "sv"), ONLY),
    "wrong language": (ONE, fence(A, "vhdl"), ONLY),
    "c fence": (ONE, fence(A, "c"), ONLY),
    "tilde fence": (ONE, fence(A, "verilog", "~~~"), ONLY),
    "long tilde fence": (ONE, fence(A, "", "~~~~~"), ONLY),
    "four backticks": (ONE, fence(A, "verilog", "````"), ONLY),
    "language after a blank": (ONE, fence(A, " verilog"), ONLY),
    "upper case language": (ONE, fence(A, "SystemVerilog"), ONLY),
    "fence in a list": (ONE, "1. The module:\n\n" + indented(fence(A), "   ") + "\n2. Done.", ONLY),
    "fence in a quote": (ONE, "Here:\n" + indented(fence(A), "> "), ONLY),
    "fence opened in a sentence": (ONE, f"The code is: {fence(A)}", ONLY),
    "fence closed after the code": (ONE, f"```verilog\n{A.rstrip()}```\nDone.", ONLY),
    "last fence not closed": (ONE, f"Here:\n```systemverilog\n{A}", ONLY),
    "fence opened twice": (ONE, f"```\n```verilog\n{A}```\n```\n", ONLY),
    "message in a markdown fence": (ONE, f"```markdown\n# ALU\n\n{fence(A)}\nDone.\n```\n", ONLY),
    "wrapped in a longer fence": (ONE, f"````markdown\nText.\n{fence(A)}````\n", ONLY),
    "Windows line ends": (
        ONE,
        fence(A).replace("\n", "\r\n"),
        {"rtl/alu.sv": A.replace("\n", "\r\n")},
    ),
    "end of turn token": (ONE, fence(A) + "<|im_end|>", ONLY),
    "end of turn token on the fence": (ONE, fence(A).rstrip() + "<|eot_id|>", ONLY),
    "byte order mark": (ONE, "\ufeff" + fence("\ufeff" + A), ONLY),
    "no-break spaces": (ONE, fence(A.replace("  ", "\u00a0\u00a0")), ONLY),
    "line numbers": (
        ONE,
        fence("".join(f"{n:4} | {line}\n" for n, line in enumerate(A.splitlines(), 1))),
        ONLY,
    ),
    "entities": (
        ONE,
        "<answer>\n" + A.replace("+ 8'd1", "&lt;&lt; 1") + "</answer>",
        {"rtl/alu.sv": A.replace("+ 8'd1", "<< 1")},
    ),
    # -- one file: which block
    "bash fence first": (ONE, f"{fence('mkdir -p rtl', 'bash')}\nThen:\n{fence(A)}", ONLY),
    "bash fence last": (
        ONE,
        f"{fence(A)}\nRun it:\n{fence('iverilog -g2012 rtl/alu.sv', 'bash')}",
        ONLY,
    ),
    "folder tree first": (ONE, fence("rtl/\n  alu.sv\n", "") + fence(A), ONLY),
    "draft, then the final answer": (
        ONE,
        f"First try:\n{fence(DRAFT)}\nThat is wrong. Final:\n{fence(A)}",
        ONLY,
    ),
    "final answer, then a snippet": (
        ONE,
        f"{fence(A)}\nThe important line is\n{fence(SNIPPET)}",
        ONLY,
    ),
    "final answer, then an instance": (
        ONE,
        f"{fence(A)}\nUse it so:\n{fence('alu u0 (.a(x), .y(z));')}",
        ONLY,
    ),
    "final answer, then a testbench": (ONE, f"{fence(A)}\nA testbench:\n{fence(BENCH)}", ONLY),
    "testbench, then the answer": (ONE, f"{fence(BENCH)}\nThe design:\n{fence(A)}", ONLY),
    "final answer, then its ports": (
        ONE,
        f"{fence(A)}\nIts interface:\n{fence(A.replace(SNIPPET, ''))}",
        ONLY,
    ),
    "final answer, then its header": (
        ONE,
        f"{fence(A)}\nwhere\n{fence(A.partition(');')[0] + ');')}",
        ONLY,
    ),
    "final answer, then what was wrong": (
        ONE,
        f"{fence(A)}\nThe original buggy version was:\n{fence(DRAFT)}",
        ONLY,
    ),
    "final answer, then elided": (
        ONE,
        f"{fence(A)}\nIn short:\n{fence(A.replace(SNIPPET, '  // ... existing code ...'))}",
        ONLY,
    ),
    "steps, then the whole": (
        ONE,
        f"{fence(A.partition(');')[0] + ');')}Step 2:\n{fence(SNIPPET)}Complete:\n{fence(A)}",
        ONLY,
    ),
    "module in two fences": (ONE, f"{fence(A[:39])}\nand then\n{fence(A[39:])}", ONLY),
    "truth table first": (ONE, fence("a | y\n0 | 1\n", "text") + fence(A), ONLY),
    "wavedrom first": (
        ONE,
        fence('{"signal": [{"name": "clk", "wave": "p..."}]}', "json") + fence(A),
        ONLY,
    ),
    # -- one file: helpers
    "helper fence first": (ONE, f"{fence(HELPER)}\nTop:\n{fence(USES)}", JOINED),
    "helper fence last": (ONE, f"{fence(USES)}\nHelper:\n{fence(HELPER)}", JOINED),
    "helper under a name of its own": (
        ONE,
        f"**rtl/inc_one.sv**\n{fence(HELPER)}\n**rtl/alu.sv**\n{fence(USES)}",
        JOINED,
    ),
    "helper in the same fence": (
        ONE,
        fence(HELPER + "\n" + USES),
        {"rtl/alu.sv": HELPER + "\n" + USES},
    ),
    "package fence first": (ONE, f"{fence(PACKAGE)}\n{fence(IMPORTS)}", PACKED),
    "helper that is not used": (ONE, f"{fence(HELPER)}\n{fence(A)}", ONLY),
    # -- one file: other wrappings
    "plain code": (ONE, A, ONLY),
    "plain code with prose around": (ONE, f"Here is the module:\n\n{A}\nThis adds one.", ONLY),
    "BEGIN and DONE": (ONE, f"[BEGIN]\n{A}[DONE]\n", ONLY),
    "answer tag": (ONE, f"<answer>\n{A}</answer>", ONLY),
    "answer tag with a fence": (ONE, f"<answer>\nDone:\n{fence(A)}</answer>", ONLY),
    "verilog tag": (ONE, f"<verilog>\n{A}</verilog>", ONLY),
    "CDATA": (ONE, f'<file path="rtl/alu.sv"><![CDATA[\n{A}]]></file>', ONLY),
    "artifact": (
        ONE,
        f'<antArtifact identifier="alu" type="application/vnd.ant.code" language="verilog" '
        f'title="8-bit ALU">\n{A}</antArtifact>',
        ONLY,
    ),
    "bolt action": (
        ONE,
        f'<boltArtifact id="x" title="ALU">\n<boltAction type="file" filePath="rtl/alu.sv">\n{A}'
        "</boltAction>\n</boltArtifact>",
        ONLY,
    ),
    "write_to_file": (
        ONE,
        f"<write_to_file>\n<path>rtl/alu.sv</path>\n<content>\n{A}</content>\n</write_to_file>",
        ONLY,
    ),
    "invoke": (
        ONE,
        '<invoke name="write_file">\n<parameter name="path">/code/rtl/alu.sv</parameter>\n'
        f'<parameter name="content">{A}</parameter>\n</invoke>',
        ONLY,
    ),
    "function call of Qwen": (
        ONE,
        "<tool_call>\n<function=write_file>\n<parameter=path>\nrtl/alu.sv\n</parameter>\n"
        f"<parameter=content>\n{A}</parameter>\n</function>\n</tool_call>",
        ONLY,
    ),
    "tool call in JSON": (
        ONE,
        "<tool_call>\n"
        + json.dumps({"name": "write_file", "arguments": {"path": "rtl/alu.sv", "content": A}})
        + "\n</tool_call>",
        ONLY,
    ),
    "tool call with arguments as text": (
        ONE,
        json.dumps(
            {"name": "write", "arguments": json.dumps({"file_path": "rtl/alu.sv", "content": A})}
        ),
        ONLY,
    ),
    "text editor tool": (
        ONE,
        json.dumps({"command": "create", "path": "/code/rtl/alu.sv", "file_text": A}),
        ONLY,
    ),
    "here document": (
        ONE,
        fence(f"mkdir -p rtl\ncat > rtl/alu.sv << 'EOF'\n{A}EOF\niverilog rtl/alu.sv", "bash"),
        ONLY,
    ),
    "here document, name last": (ONE, fence(f"cat <<EOF > rtl/alu.sv\n{A}EOF", "sh"), ONLY),
    "Python that writes": (
        ONE,
        fence(f'code = """{A}"""\nopen("rtl/alu.sv", "w").write(code)\n', "python"),
        ONLY,
    ),
    # -- thinking
    "think": (ONE, f"<think>\nMaybe\n{fence(DRAFT)}</think>\n\n{fence(A)}", ONLY),
    "think without its opening": (ONE, f"Maybe\n{fence(DRAFT)}</think>\n{fence(A)}", ONLY),
    "thinking tag": (ONE, f"<thinking>{fence(DRAFT)}</thinking>{fence(A)}", ONLY),
    "reasoning and answer tags": (
        ONE,
        f"<reasoning>\n{DRAFT}</reasoning>\n<answer>\n{A}</answer>",
        ONLY,
    ),
    "THINK in brackets": (ONE, f"[THINK]{fence(DRAFT)}[/THINK]{fence(A)}", ONLY),
    "gpt-oss channels": (
        ONE,
        f"<|channel|>analysis<|message|>{fence(DRAFT)}<|end|><|start|>assistant"
        f"<|channel|>final<|message|>{fence(A)}<|return|>",
        ONLY,
    ),
    "Kimi's thinking": (ONE, f"\u25c1think\u25b7{fence(DRAFT)}\u25c1/think\u25b7{fence(A)}", ONLY),
    "thinking that never ends": (ONE, f"<think>\nSo\n{fence(A)}", {}),
    "answer, then more thinking": (ONE, f"{fence(A)}\n<think>\nOr was it\n{fence(DRAFT)}", ONLY),
    # -- JSON
    "official JSON": (TWO, json.dumps({"code": [{"rtl/alu.sv": A}, {"rtl/mul.sv": B}]}), BOTH),
    "official JSON in a fence": (
        TWO,
        fence(
            json.dumps({"code": [{"rtl/alu.sv": A}, {"rtl/mul.sv": B}]}, indent=2) + "\n", "json"
        ),
        BOTH,
    ),
    "flat JSON": (TWO, json.dumps(BOTH), BOTH),
    "flat JSON for one": (ONE, json.dumps(ONLY), ONLY),
    "names and contents": (
        TWO,
        json.dumps([{"name": k, "content": v} for k, v in BOTH.items()]),
        BOTH,
    ),
    "files in JSON": (
        TWO,
        json.dumps({"files": [{"path": k, "code": v} for k, v in BOTH.items()]}),
        BOTH,
    ),
    "nested JSON": (
        TWO,
        json.dumps({"answer": {"files": {k: {"content": v} for k, v in BOTH.items()}}}),
        BOTH,
    ),
    "response": (ONE, json.dumps({"response": A}), ONLY),
    "response with a fence": (ONE, json.dumps({"response": f"Here:\n{fence(A)}"}), ONLY),
    "code as one text": (ONE, json.dumps({"code": A, "explanation": "Adds one."}), ONLY),
    "lines as a list": (ONE, json.dumps({"rtl/alu.sv": A.splitlines()}), ONLY),
    "raw line ends": (
        TWO,
        '{"code": [{"rtl/alu.sv": "' + A + '"}, {"rtl/mul.sv": "' + B + '"}]}',
        BOTH,
    ),
    "raw line ends and quotes": (
        ONE,
        '{"code": [{"rtl/alu.sv": "' + RAW_QUOTED + '"}]}',
        {"rtl/alu.sv": RAW_QUOTED},
    ),
    "unescaped quotes, escaped lines": (
        ONE,
        '{"rtl/alu.sv": "' + escaped(RAW_QUOTED).replace('\\"', '"') + '"}',
        {"rtl/alu.sv": RAW_QUOTED},
    ),
    "escaped quotes": (ONE, json.dumps({"rtl/alu.sv": QUOTED}), {"rtl/alu.sv": QUOTED}),
    "commas before brackets": (
        TWO,
        '{"code": [{"rtl/alu.sv": "' + escaped(A) + '",}, {"rtl/mul.sv": "' + escaped(B) + '"},],}',
        BOTH,
    ),
    "Python's dict": (TWO, str(BOTH), BOTH),
    "raw strings": (TWO, f'{{"rtl/alu.sv": r"""{A}""", "rtl/mul.sv": b{B!r}}}', BOTH),
    "triple quotes": (ONE, '{"rtl/alu.sv": """\n' + A + '"""}', {"rtl/alu.sv": "\n" + A}),
    "prose around JSON": (
        TWO,
        "Of course:\n\n" + json.dumps(BOTH) + "\n\nBoth are combinational.",
        BOTH,
    ),
    "fence in JSON": (TWO, json.dumps({"code": [{k: fence(v)} for k, v in BOTH.items()]}), BOTH),
    "escaped twice": (ONE, json.dumps({"rtl/alu.sv": escaped(A)}), ONLY),
    "draft JSON, then JSON": (
        ONE,
        json.dumps({"rtl/alu.sv": DRAFT}) + "\nBetter:\n" + json.dumps(ONLY),
        ONLY,
    ),
    "base names as keys": (TWO, json.dumps({"alu.sv": A, "mul.sv": B}), BOTH),
    # -- several files
    "aider's whole files": (TWO, f"rtl/alu.sv\n{fence(A, '')}\nrtl/mul.sv\n{fence(B, '')}", BOTH),
    "headings": (
        TWO,
        f"### 1. `rtl/alu.sv`\n\n{fence(A)}\n### 2. `rtl/mul.sv`\n\n{fence(B)}",
        BOTH,
    ),
    "bold names": (TWO, f"**alu.sv:**\n\n{fence(A)}\n**mul.sv:**\n\n{fence(B)}", BOTH),
    "names a paragraph above": (
        TWO,
        f"#### rtl/mul.sv\nIt multiplies.\n\n{fence(B)}\n#### rtl/alu.sv\nIt adds.\n\n{fence(A)}",
        BOTH,
    ),
    "names in the fence line": (
        TWO,
        fence(A, "verilog:rtl/alu.sv") + fence(B, "verilog:rtl/mul.sv"),
        BOTH,
    ),
    "title attributes": (
        TWO,
        fence(A, 'verilog title="rtl/alu.sv"') + fence(B, 'verilog title="rtl/mul.sv"'),
        BOTH,
    ),
    "path alone in the fence line": (TWO, fence(A, "rtl/alu.sv") + fence(B, "rtl/mul.sv"), BOTH),
    "Cursor's line numbers": (TWO, fence(A, "1:6:rtl/alu.sv") + fence(B, "1:6:rtl/mul.sv"), BOTH),
    "names in comments": (
        TWO,
        fence("// File: rtl/alu.sv\n" + A) + fence("// File: rtl/mul.sv\n" + B),
        {"rtl/alu.sv": "// File: rtl/alu.sv\n" + A, "rtl/mul.sv": "// File: rtl/mul.sv\n" + B},
    ),
    "no names": (TWO, f"First:\n{fence(B)}\nSecond:\n{fence(A)}", BOTH),
    "two modules in one fence": (TWO, fence(A + "\n" + B), {"rtl/alu.sv": A, "rtl/mul.sv": B}),
    "two modules, one time scale": (
        TWO,
        fence("`timescale 1ns/1ps\n" + A + B),
        {"rtl/alu.sv": "`timescale 1ns/1ps\n" + A, "rtl/mul.sv": "`timescale 1ns/1ps\n" + B},
    ),
    "two plain modules": (TWO, f"rtl/alu.sv:\n\n{A}\nrtl/mul.sv:\n\n{B}", BOTH),
    "equals signs around names": (TWO, f"=== rtl/alu.sv ===\n{A}\n=== rtl/mul.sv ===\n{B}", BOTH),
    "file tags": (
        TWO,
        f'<file path="rtl/alu.sv">\n{A}</file>\n<file path="rtl/mul.sv">\n{B}</file>',
        BOTH,
    ),
    "file tags by name": (
        TWO,
        f'<file name="rtl/alu.sv">\n{fence(A)}</file>\n<file name="rtl/mul.sv">\n{fence(B)}</file>',
        BOTH,
    ),
    "code tags": (
        TWO,
        f"<code filename='alu.sv'>\n{A}</code>\n<code filename='mul.sv'>\n{B}</code>",
        BOTH,
    ),
    "paths as tags": (TWO, f"<rtl/alu.sv>\n{A}</rtl/alu.sv>\n<rtl/mul.sv>\n{B}</rtl/mul.sv>", BOTH),
    "path and content tags": (
        TWO,
        "".join(
            f"<file>\n<path>{k}</path>\n<content>\n{v}</content>\n</file>\n"
            for k, v in BOTH.items()
        ),
        BOTH,
    ),
    "here documents": (
        TWO,
        fence("".join(f"cat > {k} <<'EOF'\n{v}EOF\n" for k, v in BOTH.items()), "bash"),
        BOTH,
    ),
    "one file twice": (
        TWO,
        f"rtl/alu.sv\n{fence(DRAFT)}rtl/mul.sv\n{fence(B)}Corrected rtl/alu.sv\n{fence(A)}",
        BOTH,
    ),
    "names swapped in prose": (
        TWO,
        f"This is used by rtl/alu.sv later:\n{fence(B)}\nBeside rtl/mul.sv:\n{fence(A)}",
        BOTH,
    ),
    # -- seen in a second look, of them the first twelve misread before
    "our module below another folder": (ONE, f"**src/alu.sv**\n\n{fence(A)}", ONLY),
    "our module in a comment's folder": (
        ONE,
        fence("// src/alu.sv\n" + A),
        {"rtl/alu.sv": "// src/alu.sv\n" + A},
    ),
    "our modules below another folder": (
        TWO,
        f"src/alu.sv\n{fence(A)}\n/workspace/src/mul.sv\n{fence(B)}",
        BOTH,
    ),
    "JSON, lines put together": (
        TWO,
        '{"code": [{"rtl/alu.sv": '
        + " +\n    ".join(json.dumps(line) for line in A.splitlines(keepends=True))
        + '}, {"rtl/mul.sv": '
        + " + ".join(json.dumps(line) for line in B.splitlines(keepends=True))
        + "}]}",
        BOTH,
    ),
    "Python's strings in brackets": (
        ONE,
        '{"rtl/alu.sv": (\n'
        + "\n".join(json.dumps(line) for line in A.splitlines(keepends=True))
        + "\n)}",
        ONLY,
    ),
    "JavaScript's strings": (
        ONE,
        "{'rtl/alu.sv': "
        + " +\n ".join(
            "'" + line.replace("'", "\\'").rstrip("\n") + "\\n'" for line in A.splitlines()
        )
        + "}",
        ONLY,
    ),
    "JavaScript's list": (
        ONE,
        '{"rtl/alu.sv": ['
        + ", ".join(json.dumps(line) for line in A.splitlines())
        + '].join("\\n")}',
        ONLY,
    ),
    "JavaScript's template": (
        TWO,
        fence(
            "const files = {\n" + "".join(f'  "{k}": `{v}`,\n' for k, v in BOTH.items()) + "};\n",
            "javascript",
        ),
        BOTH,
    ),
    "boxed in dollars": (ONE, "$$\\boxed{\\text{" + A + "}}$$", ONLY),
    "a fence that the next one ends": (
        TWO,
        f"rtl/alu.sv\n```verilog\n{A}\n**rtl/mul.sv**\n\n```verilog\n{B}```\n",
        BOTH,
    ),
    "a call in Python": (
        ONE,
        '<|python_tag|>write_file(path="rtl/alu.sv", content=' + json.dumps(A) + ")",
        ONLY,
    ),
    "tool code of Gemini": (
        ONE,
        fence('print(api.write(path="rtl/alu.sv", content=' + json.dumps(A) + "))\n", "tool_code"),
        ONLY,
    ),
    "JSON with typographic quotes": (
        ONE,
        "{\u201crtl/alu.sv\u201d: \u201c" + escaped(A) + "\u201d}",
        ONLY,
    ),
    "a shell's echo": (ONE, fence(f"mkdir rtl\necho '{A}' > rtl/alu.sv\n", "bash"), ONLY),
    "entities by number": (
        ONE,
        fence(A.replace("+ 8", "&#60;&#x3c; 8")),
        {"rtl/alu.sv": A.replace("+ 8", "<< 8")},
    ),
    "files in dashes": (TWO, "".join(f"---{k}---\n{fence(v)}" for k, v in BOTH.items()), BOTH),
    "a reply in JSON": (
        ONE,
        json.dumps({"choices": [{"message": {"role": "assistant", "content": fence(A)}}]}),
        ONLY,
    ),
    "a call of Mistral": (
        ONE,
        "[TOOL_CALLS]"
        + json.dumps([{"name": "write", "arguments": {"filename": "alu.sv", "contents": A}}]),
        ONLY,
    ),
    "a call of DeepSeek": (
        ONE,
        "<\uff5ctool\u2581calls\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>write\n"
        + fence(json.dumps({"path": "rtl/alu.sv", "content": A}) + "\n", "json"),
        ONLY,
    ),
    "an entity in a tag": (
        ONE,
        f"<file path='rtl/alu.sv'>{A.replace('+ 8', '&lt;&lt; 8')}</file>",
        {"rtl/alu.sv": A.replace("+ 8", "<< 8")},
    ),
    "thinking that leaves a fence open": (
        ONE,
        f"<think>\n```verilog\n{DRAFT}\n</think>\n{fence(A)}",
        ONLY,
    ),
    "thinking in the answer": (
        ONE,
        f"<answer><think>{fence(DRAFT)}</think>{fence(A)}</answer>",
        ONLY,
    ),
    "a table before": (
        ONE,
        f"| File | What |\n|---|---|\n| rtl/alu.sv | adds |\n\n{fence(A)}",
        ONLY,
    ),
    "marks of dashes": (
        TWO,
        "".join(f"----- BEGIN {k} -----\n{v}----- END {k} -----\n" for k, v in BOTH.items()),
        BOTH,
    ),
    "fences in a nested list": (
        TWO,
        "- Files\n" + "".join(f"  - `{k}`:\n{indented(fence(v), '    ')}" for k, v in BOTH.items()),
        BOTH,
    ),
    "the answer in the last line's words": (ONE, f"{DRAFT}\n#### FINAL\n{A}", ONLY),
    "a path of pathlib": (
        ONE,
        fence(f'Path("rtl/alu.sv").write_text("""{A}""")\n', "python"),
        ONLY,
    ),
    # -- seen only after the reader was written
    "details": (ONE, f"<details>\n<summary>rtl/alu.sv</summary>\n\n{fence(A)}\n</details>", ONLY),
    "HTML": (ONE, f'<pre><code class="language-verilog">{A}</code></pre>', ONLY),
    "LaTeX": (ONE, f"\\begin{{lstlisting}}[language=Verilog]\n{A}\\end{{lstlisting}}", ONLY),
    "boxed": (ONE, "\\boxed{\n" + A + "}", ONLY),
    "sentinels": (
        TWO,
        f"<<<FILE rtl/alu.sv>>>\n{A}<<<END>>>\n<<<FILE rtl/mul.sv>>>\n{B}<<<END>>>",
        BOTH,
    ),
    "files in brackets": (
        TWO,
        f"[FILE: rtl/alu.sv]\n{A}[/FILE]\n[FILE: rtl/mul.sv]\n{B}[/FILE]",
        BOTH,
    ),
    "YAML": (
        ONE,
        "files:\n  - path: rtl/alu.sv\n    content: |\n" + indented(A, "      "),
        {"rtl/alu.sv": indented(A, "      ")},
    ),
    "TOML": (ONE, fence(f'path = "rtl/alu.sv"\ncontent = """\n{A}"""\n', "toml"), ONLY),
    "org mode": (ONE, f"#+begin_src verilog :tangle rtl/alu.sv\n{A}#+end_src", ONLY),
    "reStructuredText": (
        ONE,
        f".. code-block:: verilog\n\n{indented(A, '   ')}",
        {"rtl/alu.sv": indented(A, "   ")},
    ),
    "AsciiDoc": (ONE, f"[source,verilog]\n----\n{A}----\n", ONLY),
    "names after the blocks": (
        TWO,
        f"{fence(A)}*rtl/alu.sv*\n\n{fence(B)}*rtl/mul.sv*",
        BOTH,
    ),
    "links as headings": (
        TWO,
        f"### [alu.sv](rtl/alu.sv)\n{fence(A)}\n### [mul.sv](rtl/mul.sv)\n{fence(B)}",
        BOTH,
    ),
    "HTML comment": (ONE, f"<!-- rtl/alu.sv -->\n{fence(A)}", ONLY),
    "Python's files": (
        TWO,
        fence("".join(f"write({k!r}, '''{v}''')\n" for k, v in BOTH.items()), "python"),
        BOTH,
    ),
    "tool calls of OpenAI": (
        TWO,
        json.dumps(
            {
                "tool_calls": [
                    {"function": {"name": "f", "arguments": json.dumps({"path": k, "text": v})}}
                    for k, v in BOTH.items()
                ]
            }
        ),
        BOTH,
    ),
    "a tree in JSON": (TWO, json.dumps({"rtl": {"alu.sv": A, "mul.sv": B}}), BOTH),
    "modules as keys": (TWO, json.dumps({"alu": A, "mul": B}), BOTH),
    "pairs in JSON": (TWO, json.dumps([[k, v] for k, v in BOTH.items()]), BOTH),
    "a line of JSON a file": (
        TWO,
        "\n".join(json.dumps({"file": k, "code": v}) for k, v in BOTH.items()),
        BOTH,
    ),
    "JSON that was cut off": (TWO, '{"code": [{"rtl/alu.sv": "' + escaped(A), ONLY),
    "JSON without its brackets": (ONE, '{"code": [{"rtl/alu.sv": "' + escaped(A) + '"', ONLY),
    "reasoning in JSON": (
        ONE,
        json.dumps({"reasoning": f"Not this:\n{fence(DRAFT)}", "code": [ONLY]}),
        ONLY,
    ),
    "notes in JSON": (ONE, json.dumps({"code": [ONLY], "notes": f"Not:\n{DRAFT}"}), ONLY),
    "plain draft, then plain code": (ONE, f"{DRAFT}\nWait, that subtracts.\n\n{A}", ONLY),
    "Codex's new files": (
        TWO,
        "*** Begin Patch\n"
        + "".join(f"*** Add File: {k}\n{indented(v, '+')}" for k, v in BOTH.items())
        + "*** End Patch\n",
        BOTH,
    ),
    "diff of a new file": (
        ONE,
        fence(f"--- /dev/null\n+++ b/rtl/alu.sv\n@@ -0,0 +1,6 @@\n{indented(A, '+')}", "diff"),
        ONLY,
    ),
    "solution tokens": (
        ONE,
        f"<|begin_of_thought|>{fence(DRAFT)}<|end_of_thought|>\n"
        f"<|begin_of_solution|>\n{fence(A)}<|end_of_solution|>",
        ONLY,
    ),
    "macromodule": (
        ONE,
        fence(A.replace("module alu", "macromodule alu")),
        {"rtl/alu.sv": A.replace("module alu", "macromodule alu")},
    ),
    "old line ends": (ONE, fence(A).replace("\n", "\r"), ONLY),
    "longer fence without a language": (ONE, f"````\n{fence(A)}````\n", ONLY),
    "name as the first line of the fence": (
        TWO,
        fence("rtl/alu.sv\n" + A) + fence("rtl/mul.sv\n" + B),
        BOTH,
    ),
    "notebook cell": (ONE, fence(f"%%writefile rtl/alu.sv\n{A}", "python"), ONLY),
    "code within a sentence": (
        ONE,
        "It is `module alu(input a, output y); assign y = a; endmodule`, no more.",
        {"rtl/alu.sv": "module alu(input a, output y); assign y = a; endmodule"},
    ),
    "plain code, its name on the next line": (
        ONE,
        f"The code:\n\n`default_nettype none\nmodule\n{A.removeprefix('module ')}"
        "`default_nettype wire\n\nDone.",
        {
            "rtl/alu.sv": f"`default_nettype none\nmodule\n{A.removeprefix('module ')}"
            "`default_nettype wire\n"
        },
    ),
    "plain code after a function and a type": (
        ONE,
        f"The code:\n\n{FUNCTION}\n{STRUCT}\n{A}\nDone.",
        {"rtl/alu.sv": f"{FUNCTION}\n{STRUCT}\n{A}"},
    ),
    "JSON with comments": (
        TWO,
        '{\n  // both\n  "code": [{"rtl/alu.sv": '
        + json.dumps(A)
        + '}, /* and */\n {"rtl/mul.sv": '
        + json.dumps(B)
        + "}]\n}",
        BOTH,
    ),
    "header without a name": (
        ("rtl/defs.vh", "rtl/alu.sv"),
        fence("`define WIDTH 8\n") + fence(A),
        {"rtl/defs.vh": "`define WIDTH 8\n", "rtl/alu.sv": A},
    ),
    "class": (
        ("verif/driver.sv",),
        fence("class driver;\n  int x;\nendclass\n"),
        {"verif/driver.sv": "class driver;\n  int x;\nendclass\n"},
    ),
    "fence in a comment": (ONE, fence(FENCED), {"rtl/alu.sv": FENCED}),
    "an index that looks like a token": (ONE, fence(INDEXED), {"rtl/alu.sv": INDEXED}),
}
"""Name to the targets, the text of the answer, and the files that it must become."""
