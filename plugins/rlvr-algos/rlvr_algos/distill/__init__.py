"""Distillation: a student's next-token distributions pulled to a teacher's, token by token.

`functional` is the part without data and runs: tensors in, loss and gradient out. `loss` is the
part `distill` of a run.
"""
