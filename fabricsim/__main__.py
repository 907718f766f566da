"""Run the command line: the script ``fabricsim``, and ``python -m fabricsim``."""

import os
import signal

_INTERRUPTED = 130  # as a shell reports a program that SIGINT ends


def run() -> None:
    """Import the commands, which takes a while, and run one; Ctrl-C is felt from the beginning."""
    signal.signal(signal.SIGINT, _end)
    from fabricsim.cli.main import main  # noqa: PLC0415  not before Ctrl-C is seen to

    main()


def _end(*_: object) -> None:
    os.write(2, b"fabricsim: interrupted\n")
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    run()
