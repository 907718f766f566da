"""Ctrl-C ends the program within a second, whatever it is busy with.

Python looks at signals between its own instructions only. A compiled kernel runs for minutes without one, and a pool
waits for its threads. A thread beside them is told by the operating system at once, and ends the program if the main
thread does not.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fabricsim.whole import drop_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

INTERRUPTED = 130
"""Exit code, as a shell reports a program that SIGINT ends."""
_PATIENCE = 0.3
"""Seconds that the main thread has to end by itself."""
_SHOW_CURSOR = "\x1b[?25h"

_said = threading.Lock()
_came = threading.Event()


@contextmanager
def ending_at_once() -> Iterator[None]:
    """End the process soon after a SIGINT within the block; only the main thread can arrange for that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    before = signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    handled = signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _unraisable
    ended = threading.Event()
    threading.Thread(target=_wait_and_end, args=(told, ended), daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        sys.unraisablehook = sys.__unraisablehook__
        signal.signal(signal.SIGINT, handled)
        signal.set_wakeup_fd(before)
        os.close(tell)


def _interrupt(*_: object) -> None:
    _came.set()
    raise KeyboardInterrupt


def _unraisable(raised: sys.UnraisableHookArgs) -> None:
    """Say nothing of an interrupt that comes while an object is thrown away: the thread ends the program."""
    if not issubclass(raised.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(raised)


def interrupted() -> bool:
    """Whether a SIGINT has come, whatever was made of it: typer ends with a code of its own."""
    return _came.is_set()


def _wait_and_end(told: int, ended: threading.Event) -> None:
    """End the process after a SIGINT, unless the main thread has left the block by itself before long."""
    with os.fdopen(told, "rb", buffering=0) as signals:
        while came := signals.read(1):
            if came[0] == signal.SIGINT:
                break
        else:
            return
        if ended.wait(_PATIENCE):
            return
        drop_parts()
        if sys.stderr.isatty():
            sys.stderr.write(_SHOW_CURSOR)  # a progress bar hides it
        say_interrupted()
        os._exit(INTERRUPTED)


def say_interrupted() -> None:
    """Say that the program was interrupted, once."""
    if _said.acquire(blocking=False):
        sys.stderr.write("fabricsim: interrupted\n")
        sys.stderr.flush()
