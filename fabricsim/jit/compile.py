"""The one way to compile a kernel; numba is imported when the first one is compiled."""

import functools
import os
from collections.abc import Callable
from typing import Any

DISABLED = os.environ.get("NUMBA_DISABLE_JIT", "0") not in {"", "0"}
"""Whether kernels stay plain Python."""


def is_compiled(engine: str = "flow") -> bool:
    """Whether an earlier run has filled the cache with the kernels of an engine, so that nothing needs compiling."""
    from fabricsim.jit.cache import programs_of  # noqa: PLC0415  imports numba
    from fabricsim.jit.digest import PACKAGE  # noqa: PLC0415  as above
    from fabricsim.jit.engines import ENGINES  # noqa: PLC0415  a program is the same whatever is said of it

    file, kernel = ENGINES[engine]
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

    `inlined`, `rare`: whether it is always or never inlined as a part.
    """

    def __init__(self, function: Callable[..., Any], *, inlined: bool = False, rare: bool = False) -> None:
        functools.update_wrapper(self, function)
        self._inlined, self._rare = inlined, rare

    @property
    def _numba_type_(self) -> Any:  # noqa: ANN401  numba asks for it by this name
        return self._part._numba_type_

    @functools.cached_property
    def _part(self) -> Any:  # noqa: ANN401  what kernels link, made when one is compiled; its type refers to it weakly
        from fabricsim.jit.program import PartCompiler, RarePartCompiler  # noqa: PLC0415  imports numba

        compiler = RarePartCompiler if self._rare else PartCompiler
        # What is not said of a part it would inherit from the kernel that calls it first.
        options = {"pipeline_class": compiler, "forceinline": self._inlined}
        return _part(self.__wrapped__, options)  # type: ignore[attr-defined]  # by update_wrapper

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401  any function
        """Call the compiled program."""
        return self._program(*arguments)

    def compile_for(self, *arguments: Any) -> Any:  # noqa: ANN401  as above
        """Compile the program for arguments like these, and call nothing; returns numba's type of what it gives."""
        import numba  # noqa: PLC0415  as in `_njit`

        types = tuple(map(numba.typeof, arguments))
        self._program.compile(types)
        return numba.types.unliteral(self._program.overloads[types].signature.return_type)

    @functools.cached_property
    def _program(self) -> Any:  # noqa: ANN401  numba's dispatchers have no types
        from fabricsim.jit.cache import ProgramCache  # noqa: PLC0415  imports numba
        from fabricsim.jit.program import ProgramCompiler  # noqa: PLC0415  as above

        function = self.__wrapped__  # type: ignore[attr-defined]  # by update_wrapper
        program = _njit(pipeline_class=ProgramCompiler)(function)
        program._cache = ProgramCache(function)  # noqa: SLF001  as its `enable_caching` does with numba's own
        return program


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function`, for kernels and for Python to call; LLVM decides where it is inlined."""
    return function if DISABLED else Kernel(function)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `kernel`, and always inlined: for what is called for each packet at each link."""
    return function if DISABLED else Kernel(function, inlined=True)


def rare(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `kernel`, and never inlined: what few packets or few transports need takes no registers from all others."""
    return function if DISABLED else Kernel(function, rare=True)


def _njit(**options: Any) -> Any:  # noqa: ANN401  numba's decorators have no types
    import numba  # noqa: PLC0415  no module that has kernels needs it at once

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
