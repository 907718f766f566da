"""What is wrong with a user's kernel, as one error with its place; numba says it in twenty lines."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from fabricsim.errors import InputError
from fabricsim.jit.compile import Kernel

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PLACE = re.compile(r'File "([^"\n]+)", line (\d+)|\bat (\S+) \((\d+)\)')
_NO_KERNEL = re.compile(r"Untyped global name '(\w+)': [^\n]* <class 'function'>")
_NO_COLUMN = re.compile(r"^'(\w+)'$|Unknown attribute '(\w+)' of type Record|Field '(\w+)' was not found in record")
_WHOLE = re.compile(r"u?int\d+|bool")
_LONGEST = 160
_WAY_OUT = "a kernel takes numbers and records, makes no arrays, and calls kernels only; see docs/howto/own-law.md"


def compile_alone(function: Callable[..., Any], arguments: Sequence[Any], shape: str, *, answers: bool = False) -> None:
    """Compile a user's kernel for some arguments.

    `shape`: how it is to be written, such as ``"lose(flow, law, now)"``.
    `answers`: whether it gives a number, or true or false.
    Raises InputError if it is no kernel, takes other arguments, cannot be compiled, or may give something else.
    """
    code = getattr(function, "__wrapped__", function).__code__
    place = f"{code.co_filename}:{code.co_firstlineno}"
    if not isinstance(function, Kernel):
        raise InputError(f"{place}: {code.co_name} is no kernel; write @kernel above it, from fabricsim.jit.compile")
    if code.co_argcount != len(arguments):
        raise InputError(f"{place}: kernel {code.co_name} takes {code.co_argcount} arguments; write it as {shape}")
    try:
        given = function.compile_for(*arguments)
    except Exception as error:  # numba raises what it happens to meet
        line, problem = _told(error, Path(code.co_filename), code.co_firstlineno)
        msg = f"{code.co_filename}:{line}: kernel {code.co_name} cannot be compiled: {problem}; {_WAY_OUT}"
        raise InputError(msg) from error
    if answers and not _WHOLE.fullmatch(str(given)):
        what = "can give None" if str(given).startswith(("none", "OptionalType")) else f"gives {given}"
        msg = f"{place}: kernel {code.co_name} {what}; return a whole number, or true or false, whatever happens"
        raise InputError(msg)


def require_own_columns(module: ModuleType, settable: Mapping[str, str]) -> None:
    """Refuse kernels of a user's file that set columns which are not theirs, as the engine would go on with them.

    `settable`: columns that they may set, and the only value, as it is written, of those that have one; else ``""``.
    Raises InputError with the line.
    """
    text = Path(module.__file__ or "").read_text(encoding="utf-8", errors="replace")
    for function in ast.parse(text).body:
        if isinstance(function, ast.FunctionDef) and isinstance(vars(module).get(function.name), Kernel):
            for line, column, value in _columns_set(function):
                if column not in settable or settable[column] not in {"", value}:
                    columns = [f"{name} = {only}" if only else name for name, only in settable.items()]
                    msg = f"{module.__file__}:{line}: kernel {function.name} sets {column!r}, which is not its own; "
                    msg += f"it may set {', '.join(columns) or 'nothing'}; see docs/howto/own-law.md"
                    raise InputError(msg)


def _columns_set(function: ast.FunctionDef) -> Iterator[tuple[int, str, str]]:
    """Find the columns of records that a kernel sets: line, name, and the value if it is set to one outright."""
    values = {
        id(target): ast.unparse(node.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for target in node.targets
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr, values.get(id(node), "")
        elif (
            isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.slice, ast.Constant)
        ):
            yield node.lineno, str(node.slice.value), values.get(id(node), "")


def _told(error: Exception, file: Path, first: int) -> tuple[int, str]:
    """Find the line of a mistake, and what numba says first that is not about itself."""
    text = _COLOURS.sub("", str(error))
    said = (line.strip() for line in text.splitlines())
    problem = next((line for line in said if line and not line.startswith(("Failed in", "During:"))), text)
    places = [(Path(one or other).name, int(line or at)) for one, line, other, at in _PLACE.findall(text)]
    line = next((line for name, line in places if name == file.name), first)
    name, before = None, "(?<!def )"
    if found := _NO_KERNEL.search(text):
        name, problem = found[1], f"{found[1]} is called and is no kernel, write @kernel above it"
    elif found := _NO_COLUMN.search(text):
        name, before = next(filter(None, found.groups())), r"\."
        problem = f"there is no column {name!r}, add it to `state` or `parameters`, or mend its name"
    elif found := re.search(r"name '(\w+)'", problem):
        name = found[1]
    if name is not None:  # numba's place may be that of a call
        lines = enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        use = re.compile(rf"{before}\b{name}\b")
        line = next((at for at, written in lines if use.search(written)), line)
    return line, problem if len(problem) <= _LONGEST else f"{problem[:_LONGEST]} ..."
