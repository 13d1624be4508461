"""The first prompt of an agent: the request, the files, and the actions with examples."""

from __future__ import annotations

from rlvr import Message
from rlvr_cvdp.problem import CvdpProblem

ACTIONS = """\
You work on the files of a hardware project. In each message you may take one or more actions; they
are done in order, and what they answer is shown to you. An action is a fenced block whose first
line names it:

```list
```
```read rtl/example.sv 1-40
```
```write rtl/example.sv
module example;
endmodule
```
```replace rtl/example.sv
<<<<<<<
the old lines, exactly as they are in the file
=======
the new lines
>>>>>>>
```
```run compile
```
```run lint
```
```run stat
```
```run simulate verif/example_tb.sv
```
```submit
```

- list shows all files; read shows a file or some of its lines, with line numbers.
- write makes a file or replaces all of it; replace changes one place. You may write below rtl/,
  verif/, docs/ and rundir/.
- run compile (Icarus Verilog), run lint (Verilator) and run stat (Yosys: cells after synthesis)
  take the files to be judged, or the files that you name. run simulate compiles and runs a
  testbench that you wrote.
- submit ends your work. The files to be judged are then tested as they are.
"""


def agent_prompt(problem: CvdpProblem, turns: int) -> tuple[Message, ...]:
    """System and user message of an agent's first turn: names of files, not their contents."""
    user = (
        f"{problem.prompt}\n\n"
        f"Files to be judged: {', '.join(problem.targets)}\n"
        f"Files that are there: {', '.join(sorted(problem.visible)) or 'none'}\n"
        f"You have {turns} turn{'s' * (turns != 1)}.\n"
    )
    return Message(role="system", content=ACTIONS), Message(role="user", content=user)
