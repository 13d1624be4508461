"""Distillation: a student's next-token distributions pulled to a teacher's, token by token.

`distributions.functional` is the part without data and runs: tensors in, loss and gradient out.
`loss` is the part `distill` of a run, `opd` the loss of on-policy distillation, `cross_tokenizer`
what reads the policy's tokens with a teacher of another tokenizer.
"""
