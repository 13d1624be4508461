"""The filter of system calls (see `syscalls`): bubblewrap's BPF program and Docker's profile."""

from __future__ import annotations

import functools
import itertools
import json
import platform
import struct
from collections.abc import Iterable, Sequence

from rlvr import PrerequisiteError
from rlvr_cvdp.sandbox.confine.syscalls import CONDITIONS, MACHINES, Condition, numbers

_LOAD, _EQUAL, _ABOVE, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
"""Codes of classic BPF, linux/bpf_common.h: load a word, jump on ==, >, >=, &; return."""
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16
"""Places in `struct seccomp_data`, linux/seccomp.h; an argument's lower half comes first."""
_KILL, _ALLOW, _ERROR = 0x80000000, 0x7FFF0000, 0x00050000
_ENOSYS, _EPERM = 38, 1
_X32 = 0x40000000
"""From here on x86_64 numbers belong to a second table, which nothing of ours uses."""


@functools.cache
def bpf_program(machine: str = "") -> bytes:
    """
    The program for `bwrap --seccomp`: 8 bytes an instruction, for this machine unless named.

    Raises:
        PrerequisiteError: The numbers of this machine's system calls are not known.
    """
    machine = machine or platform.machine()
    if machine not in MACHINES:
        raise PrerequisiteError(
            "answers were to be verified in a bubblewrap sandbox.",
            f"found: a {machine} machine; its filter of system calls is not known "
            f"(known: {', '.join(MACHINES)})",
            "try: cvdp.sandbox=docker, where the daemon makes the filter",
        )
    audit, column = MACHINES[machine]
    known = {name: pair[column] for name, pair in numbers().items()}
    code = [_step(_LOAD, _MACHINE_AT), _step(_EQUAL, audit, 1, 0), _step(_RETURN, _KILL)]
    code += [_step(_LOAD, _NUMBER_AT), _step(_AT_LEAST, _X32, 0, 1)]
    code += [_step(_RETURN, _ERROR | _ENOSYS)]
    for name, conditions in CONDITIONS.items():
        number = known[name]
        assert number is not None
        check = _check(conditions)
        code += [_step(_EQUAL, number, 0, len(check)), *check]
    plain = (n for name, n in known.items() if n is not None and name not in CONDITIONS)
    for first, last in _runs(plain):
        code += [_step(_ABOVE, last, 3, 0), _step(_AT_LEAST, first, 0, 1)]
        code += [_step(_RETURN, _ALLOW), _step(_RETURN, _ERROR | _ENOSYS)]
    return b"".join([*code, _step(_RETURN, _ERROR | _ENOSYS)])


def docker_profile() -> str:
    """The profile for Docker's `--security-opt seccomp=`; the daemon knows the numbers."""
    allow = "SCMP_ACT_ALLOW"
    rules: list[dict[str, object]] = [
        {"names": [name for name in numbers() if name not in CONDITIONS], "action": allow},
        # Said for itself: a daemon before 20.10.11 knows no error but EPERM for the rest.
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},
    ]
    for name, conditions in CONDITIONS.items():
        for args in itertools.product(*(_docker_options(one) for one in conditions)):
            rules.append({"names": [name], "action": allow, "args": list(args)})
    return json.dumps(
        {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": _ENOSYS, "syscalls": rules}
    )


def _docker_options(condition: Condition) -> list[dict[str, object]]:
    """What Docker's profile says of an argument: one of these must hold."""
    where: dict[str, object] = {"index": condition.argument}
    if condition.mask:
        return [where | {"value": condition.mask, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]
    return [where | {"value": value, "op": "SCMP_CMP_EQ"} for value in condition.values]


def _step(code: int, value: int, on_true: int = 0, on_false: int = 0) -> bytes:
    """One instruction; the jumps count instructions to pass over."""
    return struct.pack("=HBBI", code, on_true, on_false, value)


def _check(conditions: Sequence[Condition]) -> list[bytes]:
    """What decides about a call whose number is known to have conditions."""
    code = []
    for condition in conditions:
        code.append(_step(_LOAD, _ARGUMENTS_AT + 8 * condition.argument))
        if condition.mask:
            code.append(_step(_ANY_BIT, condition.mask, 0, 1))
        for place, value in enumerate(condition.values):
            code.append(_step(_EQUAL, value, len(condition.values) - place, 0))
        code.append(_step(_RETURN, _ERROR | _EPERM))
    return [*code, _step(_RETURN, _ALLOW)]


def _runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each run of numbers that follow one another, in order."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs
