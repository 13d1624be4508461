"""The subcommands of `rlvr tinker`."""
