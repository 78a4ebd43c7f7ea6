"""One module a command of the command line: `add_arguments(parser)` and `run(arguments) -> exit status`."""
