"""Entry point of the ``bayplan`` command and of ``python -m bayplan``; the commands are in ``bayplan.cli``."""

from bayplan.cli import bayplan


def main() -> None:
    """Run the command with the process's arguments and exit with its code."""
    bayplan(prog_name="bayplan")


if __name__ == "__main__":
    main()
