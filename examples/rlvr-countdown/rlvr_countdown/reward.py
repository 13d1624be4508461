"""The verifier: reads the expression, checks its numbers, evaluates it exactly."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from fractions import Fraction
from operator import add, mul, sub, truediv

from attrs import frozen
from attrs.validators import ge, le

from rlvr import BuildContext, Problem, Reward, RewardFn, Trajectory, option

ANSWER = re.compile(r"<answer>([^<]{1,200})</answer>")
OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.Div: truediv,
}


@frozen(kw_only=True)
class CountdownOptions:
    """Options of the reward: `countdown.KEY=VALUE` on the command line."""

    format_reward: float = option(
        0.1, "Reward of a readable answer that is wrong", validator=[ge(0), le(1)]
    )


class CountdownReward(RewardFn):
    """1 for an expression that uses each number once and makes the target."""

    def __init__(self, config: CountdownOptions | None, context: BuildContext) -> None:
        self._format_reward = (config or CountdownOptions()).format_reward

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
        """Judge the last answer of the completion."""
        found = ANSWER.findall(trajectory.completion)
        try:
            numbers, value = evaluate(found[-1] if found else "")
        except (ValueError, SyntaxError, RecursionError) as error:
            return Reward(value=0.0, score01=0.0, evidence={"unreadable": str(error)})
        except ZeroDivisionError:
            numbers, value = [], None
        is_right = (
            sorted(numbers) == sorted(problem.payload.numbers) and value == problem.payload.target
        )
        return Reward(
            value=1.0 if is_right else self._format_reward,  # what training sees
            score01=1.0 if is_right else 0.0,  # what pass@k counts
            components={"format": self._format_reward, "right": float(is_right)},
            evidence={"value": str(value), "numbers": numbers},  # for people, in `rlvr score`
        )


def evaluate(expression: str) -> tuple[list[int], Fraction]:
    """
    The numbers of an expression in order, and its exact value.

    Raises:
        ValueError: It holds anything but whole numbers, + - * / and parentheses.
        SyntaxError: It is no expression.
        ZeroDivisionError: It divides by zero.
    """
    numbers: list[int] = []

    def value_of(node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                numbers.append(number)
                return Fraction(number)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value_of(left), value_of(right))
        raise ValueError(f"{type(node).__name__} is not allowed")

    value = value_of(ast.parse(expression.strip(), mode="eval").body)
    return numbers, value
