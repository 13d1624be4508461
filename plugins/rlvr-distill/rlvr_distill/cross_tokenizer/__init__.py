"""Teachers whose tokenizer differs from the policy's: their answers on the policy's tokens."""
