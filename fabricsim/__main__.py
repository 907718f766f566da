"""Run the command line as ``python -m fabricsim``."""

from __future__ import annotations

from fabricsim.cli.main import main

if __name__ == "__main__":
    main()
