"""The subcommands of `rlvr sad`."""
