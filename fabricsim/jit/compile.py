"""The one way to compile a kernel."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numba
from numba.core import config as _config

from fabricsim.jit.cache import ProgramCache, programs_of
from fabricsim.jit.digest import PACKAGE
from fabricsim.jit.program import PartCompiler, ProgramCompiler, RarePartCompiler

if TYPE_CHECKING:
    from collections.abc import Callable

config: Any = _config  # its attributes are made at run time
_ENGINES = {
    "flow": ("engine/flow/kernels/main_loop.py", "advance"),
    "packet": ("engine/packet/kernels/main_loop.py", "advance"),
    "reference": ("engine/program/dispatch.py", "handle"),
}
"""Of the kernels that Python enters, one that takes long to compile: file and name."""


def is_compiled(engine: str = "flow") -> bool:
    """Whether an earlier run has filled the cache with the kernels of an engine, so that nothing needs compiling."""
    file, kernel = _ENGINES[engine]
    source = PACKAGE / file
    folder = programs_of(source)
    try:
        return folder is not None and any(folder.glob(f"{source.stem}.{kernel}-*.nbc"))
    except OSError:  # the home of another user
        return False


class Kernel:
    """A compiled function: a part of the kernels that call it, and a program of its own where Python does.

    Compiled on first use, a program cached, without the GIL, division by zero giving inf. A kernel owns
    no arrays, so none of them is counted: counting the references of a dozen arrays at each call of a
    helper took half the time of the engine. It follows that a kernel cannot make one.

    `function`: what to compile.
    `**options`: of numba, for it as a part.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:  # noqa: ANN401  numba's
        functools.update_wrapper(self, function)
        # What is not said of a part it would inherit from the kernel that calls it first.
        self._options = {"pipeline_class": PartCompiler, "forceinline": False, **options}

    @property
    def _numba_type_(self) -> Any:  # noqa: ANN401  numba asks for it by this name
        return self._part._numba_type_

    @functools.cached_property
    def _part(self) -> Any:  # noqa: ANN401  what kernels link, made when one is compiled; its type refers to it weakly
        return _part(self.__wrapped__, self._options)  # type: ignore[attr-defined]  # by update_wrapper

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401  any function
        """Call the compiled program."""
        return self._program(*arguments)

    @functools.cached_property
    def _program(self) -> Callable[..., Any]:
        function = self.__wrapped__  # type: ignore[attr-defined]  # by update_wrapper
        program = _njit(pipeline_class=ProgramCompiler)(function)
        program._cache = ProgramCache(function)  # noqa: SLF001  as its `enable_caching` does with numba's own
        return program  # type: ignore[no-any-return]


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function`, for kernels and for Python to call; LLVM decides where it is inlined."""
    return function if config.DISABLE_JIT else Kernel(function)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `kernel`, and always inlined: for what is called for each packet at each link."""
    return function if config.DISABLE_JIT else Kernel(function, forceinline=True)


def rare(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `kernel`, and never inlined: what few packets or few transports need takes no registers from all others."""
    return function if config.DISABLE_JIT else Kernel(function, pipeline_class=RarePartCompiler)


def _njit(**options: Any) -> Any:  # noqa: ANN401  numba's decorators have no types
    njit: Any = numba.njit  # its types leave _nrt out
    return njit(nogil=True, error_model="numpy", _nrt=False, **options)


def _part(function: Callable[..., Any], options: dict[str, Any]) -> Any:  # noqa: ANN401  as above
    dispatcher = _njit(**options)(function)

    def add_overload(result: Any) -> None:  # noqa: ANN401  as above
        # Callers know a function by its entry point, for which anything will do that there is only one of.
        token = object()
        dispatcher.targetctx.insert_user_function(token, result.fndesc, [result.library])
        dispatcher.overloads[tuple(result.signature.args)] = result._replace(entry_point=token)

    dispatcher.add_overload = add_overload
    return dispatcher
