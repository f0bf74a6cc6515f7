"""`python -m albert_data`, for launchers that start modules, such as torchrun."""

from albert_data.cli.entry import main

if __name__ == "__main__":
    main()
