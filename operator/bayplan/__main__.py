"""The ``bayplan`` command, also as ``python -m bayplan``.

Owns the entry point only; what there is to run stands in ``bayplan.cli``.
"""

from bayplan.cli import bayplan


def main() -> None:
    """Run the command with the process's arguments and exit with its code."""
    bayplan(prog_name="bayplan")


if __name__ == "__main__":
    main()
