"""A digest of all that a compiled program is made of, so that none is used for other sources than its own.

numba looks at the file of the entry kernel only. Here the module of that kernel counts, and so does each
module of the package that it imports, and so on: what kernels call and which constants they read can
only come from there. Of a module its code counts, as Python has compiled it, but for names of files,
numbers of lines and docstrings; so a comment changes nothing. The code is that of Python's own cache,
which takes milliseconds to read.
"""

import dis
import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, cast

import llvmlite  # type: ignore[import-untyped]
import numba
import numpy as np
from numba.core import config as _config

config: Any = _config  # its attributes are made at run time
PACKAGE = Path(__file__).resolve().parents[1]
_ALWAYS = ("compile.py", "program.py", "tables.py")
"""Of this folder: how kernels are compiled, whatever they import."""
_KEEPERS = ("cache.py", "digest.py", "unused.py")
"""Of this folder: what says where compiled kernels are kept, and not what they are."""
_DOCUMENTED = 0x4000000
"""CO_HAS_DOCSTRING, a flag of functions from Python 3.13 on."""


class _Module(NamedTuple):
    digest: str
    imports: tuple[Path, ...]


def digest(source: Path, package: Path = PACKAGE) -> str:
    """Digest all that the programs of a module's kernels are made of, and the versions of what compiles them."""
    versions = (numba.__version__, llvmlite.__version__, np.__version__, config.BOUNDSCHECK)
    parts = [_module(path, package).digest for path in sources(source, package)]
    return hashlib.sha256(repr((versions, parts)).encode()).hexdigest()[:16]


def digest_of(code: CodeType) -> str:
    """Digest the code of one function."""
    return hashlib.sha256(repr(_parts(code)).encode()).hexdigest()[:16]


def digest_of_kernels(functions: Iterable[Callable[..., Any]]) -> str:
    """Digest functions with all that they call and the numbers that they read, wherever that is written."""
    found: dict[Any, str] = {}
    waiting = list(functions)
    while waiting:
        function = inspect.unwrap(waiting.pop())
        if function in found:
            continue
        read = sorted(_read_by(function), key=lambda pair: pair[0])
        called = [value for _, value in read if callable(value)]
        waiting += [value for value in called if isinstance(inspect.unwrap(value), FunctionType)]
        names = [getattr(value, "__qualname__", str(value)) for value in called]
        numbers = [(name, repr(value)) for name, value in read if not callable(value)]
        found[function] = repr((digest_of(function.__code__), names, numbers))
    return hashlib.sha256(repr(sorted(found.values())).encode()).hexdigest()[:16]


def _read_by(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function finds in its module and in modules there, and what it is a closure over, by name."""
    names = function.__code__.co_names
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType):
            yield from ((f"{name}.{inner}", getattr(value, inner)) for inner in names if hasattr(value, inner))
        elif value is not None:
            yield name, value
    yield from zip(
        function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ()), strict=True
    )


def sources(source: Path, package: Path = PACKAGE) -> list[Path]:
    """Find the modules of a package that a module imports, directly or not.

    `source`, `package`: file of the module, which need not be in the package; folder of the package.
    Returns: their files, that of the module itself and of what compiles kernels included; those of one package are in
        one order, wherever it is.
    """
    found = set[Path]()
    waiting = {source, *(package / "jit" / name for name in _ALWAYS)}
    while waiting:
        found |= waiting
        waiting = {path for each in waiting for path in _module(each, package).imports} - found
    keepers = {package / "jit" / name for name in _KEEPERS}
    return sorted(found - keepers, key=lambda path: (path.is_relative_to(package), path))


@functools.cache
def _module(source: Path, package: Path) -> _Module:
    code = cast("CodeType", SourceFileLoader(source.stem, str(source)).get_code(source.stem))  # of a file, never None
    keeps = source.parent == package / "jit" and source.name in _KEEPERS
    return _Module(digest_of(code), () if keeps else tuple(_imported(code, package)))


def _imported(code: CodeType, package: Path) -> Iterator[Path]:
    """Yield the files of a package that the body of a module imports from."""
    module: Path | None = None
    for each in dis.get_instructions(code):
        if each.opname == "IMPORT_NAME":
            top, *names = each.argval.split(".")
            module = package.joinpath(*names) if top == package.name else None
            if module is not None and not module.is_dir():
                yield module.with_suffix(".py")
        elif each.opname == "IMPORT_FROM" and module is not None and module.is_dir():
            inner = module / each.argval
            yield inner.with_suffix(".py") if inner.with_suffix(".py").is_file() else module / "__init__.py"


def _parts(code: CodeType) -> tuple[Any, ...]:
    """List what tells code apart from other code, without places in files and docstrings."""
    constants = code.co_consts
    if _is_documented(code):
        constants = constants[1:]
    names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & ~_DOCUMENTED)
    return (code.co_code, code.co_exceptiontable, names, counts, [_plain(each) for each in constants])


def _is_documented(code: CodeType) -> bool:
    """Whether the first constant is a docstring: before Python 3.13 that of each ``def`` is one, or None."""
    if not code.co_consts or not isinstance(code.co_consts[0], str):
        return False
    if code.co_name == "<module>":
        return code.co_names[:1] == ("__doc__",)
    if code.co_name.startswith("<") or not code.co_flags & inspect.CO_OPTIMIZED:  # a lambda and such; a class
        return False
    return sys.version_info < (3, 13) or bool(code.co_flags & _DOCUMENTED)


def _plain(constant: object) -> object:
    """Write a constant so that its ``repr`` is always the same."""
    if isinstance(constant, CodeType):
        return _parts(constant)
    if isinstance(constant, frozenset):
        return sorted(map(repr, constant))
    return tuple(map(_plain, constant)) if isinstance(constant, tuple) else constant
