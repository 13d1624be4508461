"""The subcommands of `rlvr chess`."""
