"""The built-in samplers: groups of rollouts from the policy, or made of references."""
