"""The subcommands of `rlvr cvdp`, and checks of the machine."""
