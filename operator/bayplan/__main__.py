"""Entry point of the ``bayplan`` command and of ``python -m bayplan``; the commands are in ``bayplan.cli``."""

import sys
from pathlib import PurePath

from bayplan.cli import bayplan


def main() -> None:
    """Run the command with the process's arguments and exit with its code."""
    # kubectl runs its plugins as kubectl-NAME, and its users call the command as `kubectl NAME`.
    is_plugin = PurePath(sys.argv[0]).stem == "kubectl-bayplan"
    bayplan(prog_name="kubectl bayplan" if is_plugin else "bayplan")


if __name__ == "__main__":
    main()
