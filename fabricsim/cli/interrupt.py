"""Ctrl-C ends the program at once, whatever it is busy with.

Python looks at signals between its own instructions only. A compiled kernel runs for minutes without one, and a pool
waits for its threads. A thread beside them is told by the operating system, and ends the program.

Nothing is raised: an exception out of nowhere ends in whatever runs just then, such as an import, which turns it into
another one, or code from a string, after which Python itself ends by the signal and not with a code.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Never

from fabricsim.files.atomic import drop_parts

INTERRUPTED = 130
"""Exit code, as a shell reports a program that SIGINT ends."""
_SHOW_CURSOR = b"\x1b[?25h"

_ending = threading.RLock()  # a second signal may come while the first is dealt with


@contextmanager
def ending_at_once() -> Iterator[None]:
    """End the process on a SIGINT within the block; only the main thread can arrange for that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    before = signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    handled = signal.signal(signal.SIGINT, lambda *_: _end())
    threading.Thread(target=_wait_and_end, args=(told,), daemon=True).start()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handled)
        signal.set_wakeup_fd(before)
        os.close(tell)


def _wait_and_end(told: int) -> None:
    """End the process after a SIGINT, unless the block ends before."""
    with os.fdopen(told, "rb", buffering=0) as signals:
        while came := signals.read(1):
            if came[0] == signal.SIGINT:
                _end()


def _end() -> Never:
    """End with nothing half-written left behind; what comes second waits for the end."""
    _ending.acquire()
    drop_parts()
    if sys.stderr is not None and sys.stderr.isatty():
        os.write(2, _SHOW_CURSOR)  # a progress bar hides it
    os.write(2, b"fabricsim: interrupted\n")
    os._exit(INTERRUPTED)
