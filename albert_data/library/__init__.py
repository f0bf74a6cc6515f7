"""The public functions, one for each command. The command line calls just these; `albert_data` loads them by name."""
