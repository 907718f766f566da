"""Compile an entry kernel and all that it calls as one program.

Left alone, numba optimises and assembles a function together with all that it calls, then does so again
inside each of its callers, so that a deep tree is compiled many times over. And as it keeps every
function for others to link, LLVM does not inline what is called from one place. Here functions that
only kernels call are lowered and no more. The kernel that Python enters links them, makes them its
own, and is optimised once: half the time to compile, and fewer calls left.
"""

from graphlib import TopologicalSorter
from typing import Any

from llvmlite import binding  # type: ignore[import-untyped]
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import NopythonRewrites
from numba.core.untyped_passes import InlineClosureLikes


class _Part(JITCodeLibrary):
    """A lowered function, which never is a program of its own."""

    def finalize(self) -> None:
        self._raise_if_finalized()
        self._finalize_dynamic_globals()
        self._finalized = True


class _RarePart(_Part):
    """One that stays a function of its own in every program."""

    def add_ir_module(self, module: Any) -> None:  # noqa: ANN401  LLVM's
        for function in module.functions:
            if not function.is_declaration and "alwaysinline" not in function.attributes:
                function.attributes.add("noinline")
        super().add_ir_module(module)


class _Program(JITCodeLibrary):
    """An entry kernel with all the parts that it calls, directly or not."""

    def finalize(self) -> None:
        self._linking_libraries = _with_parts(self._linking_libraries)
        super().finalize()

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.linkage == binding.Linkage.linkonce_odr:
                function.linkage = "internal"
        super()._optimize_final_module()


def _with_parts(libraries: list[Any]) -> list[Any]:
    """Follow the calls of parts, which have linked nothing themselves: each library comes behind all that call it.

    LLVM leaves out what nothing that it has linked so far refers to.
    """
    called: dict[Any, list[Any]] = {}
    waiting = list(libraries)
    while waiting:
        library = waiting.pop()
        if library not in called:
            called[library] = list(library._linking_libraries) if isinstance(library, _Part) else []  # noqa: SLF001  its own kind
            waiting += called[library]
    return list(TopologicalSorter(called).static_order())[::-1]


class _OneProgram(Compiler):
    """numba's compiler, with a library of ours."""

    library: type[JITCodeLibrary] = _Program

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, *state: Any) -> None:  # noqa: ANN401  numba's
        library = self.library(targetctx.codegen(), self.library.__name__)
        library.enable_object_caching()
        super().__init__(typingctx, targetctx, library, *state)

    def define_pipelines(self) -> list[PassManager]:
        """Leave out what kernels have no use for: they have neither closures nor expressions of whole arrays."""
        (default,) = super().define_pipelines()
        pipeline = PassManager("kernel")
        for step, purpose in default.passes:
            if step not in (InlineClosureLikes, NopythonRewrites):
                pipeline.add_pass(step, purpose)
        pipeline.finalize()
        return [pipeline]


class ProgramCompiler(_OneProgram):
    """For kernels that Python enters."""


class PartCompiler(_OneProgram):
    """For functions that only kernels call."""

    library = _Part

    def __init__(self, *state: Any) -> None:  # noqa: ANN401  as above
        super().__init__(*state)
        flags = self.state.flags
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True


class RarePartCompiler(PartCompiler):
    """For those that are seldom called."""

    library = _RarePart
