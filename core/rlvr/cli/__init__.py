"""The command line: one module for each subcommand, imported when it is used."""
