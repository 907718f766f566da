"""Topologies, collectives, schedules and the like, found by name: those of fabricsim, installed ones, a user's files.

Each is one module with one declaration, such as ``TOPOLOGY``. A user names a file, ``fabric.topology = "mine.py"``, or
installs a distribution with an entry point, such as ``torus = "my_package.torus:TOPOLOGY"`` in the group
``fabricsim.topologies``. Files are run if a scenario file or the command line names them, never because a result or a
trace does.
"""

import hashlib
import inspect
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType, NoneType
from typing import Any, Generic, NamedTuple, TypeGuard, TypeVar, cast

from fabricsim.errors import FabricsimError, InputError

T = TypeVar("T")

LARGEST = 2**20
"""Bytes of a user's file."""

_ENDING = ".py"


class _File(NamedTuple):
    """A file that was run, and the SHA-256 of what was run."""

    module: ModuleType
    digest: str


_files: dict[str, _File] = {}  # by the names under which scenarios have them: paths as they were given


def is_file(name: object) -> TypeGuard[str]:
    """Whether a name is that of a user's file."""
    return isinstance(name, str) and name.endswith(_ENDING)


def run(name: str) -> str:
    """Run a user's file, so that registries find what it declares under its name; returns its SHA-256.

    Its module is called after the digest: an edited file is another module, the same one is run once.

    Raises InputError if there is no such file, or it cannot be run.
    """
    source = _read(Path(name))
    digest = hashlib.sha256(source).hexdigest()
    module = sys.modules.get(_module_name(digest)) or _executed(name, source, _module_name(digest))
    _files[name] = _File(module, digest)
    return digest


def supply(needed: Mapping[str, str], given: Iterable[str]) -> None:
    """Run the files that a result was made with, if they are among those that the user gives.

    `needed`: SHA-256 by the name that the result has for each.
    `given`: paths of the user.
    Raises InputError if a given file is none of those, or cannot be read or run.
    """
    for path in given:
        digest = hashlib.sha256(_read(Path(path))).hexdigest()
        names = [name for name, other in needed.items() if other == digest]
        if not names:
            wanted = ", ".join(f"{name} (SHA-256 {other})" for name, other in needed.items()) or "no extension"
            msg = f"{path}: has SHA-256 {digest}, but the result was made with {wanted}; give those files, as they were"
            raise InputError(msg)
        run(path)
        for name in names:
            _files[name] = _files[path]


def recall(needed: Mapping[str, str]) -> None:
    """Have files be as they were when a scenario was loaded, though they were edited and loaded again since.

    `needed`: SHA-256 by the name of each; those of installed distributions, which are loaded once, are left alone.
    """
    for name, digest in needed.items():
        module = sys.modules.get(_module_name(digest))
        if name in _files and module is not None:
            _files[name] = _File(module, digest)


def _module_name(digest: str) -> str:
    return f"fabricsim_extension_{digest[:16]}"


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise InputError(f"{path}: there is no such file; name a Python file from the folder of the scenario")
        with path.open("rb") as file:
            source = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:  # such as a name that is too long, or one with a NUL
        raise InputError(f"{path}: cannot be read: {error}") from error
    if len(source) > LARGEST:
        raise InputError(f"{path}: is larger than {LARGEST} bytes; an extension is one module")
    return source


def _executed(path: str, source: bytes, name: str) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = str(Path(path).resolve())
    sys.modules[name] = module  # before it runs: pydantic, dataclasses and numba look their modules up
    try:
        exec(compile(source, module.__file__, "exec", dont_inherit=True), module.__dict__)  # noqa: S102  the user named this file to be run
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        line = error.lineno if isinstance(error, SyntaxError) else _last_line(error, {module.__file__})[1]
        raise InputError(f"{path}{f':{line}' if line else ''}: cannot be imported: {_said(error)}") from error
    return module


def _completed(declared: object, place: str) -> object:
    """Have pydantic resolve the annotations of a model now, so that no other model meets what is wrong with them.

    Its defaults are taken as what a user writes: they are checked, and may have units.
    """
    if isinstance(declared, type) and hasattr(declared, "model_rebuild"):
        fields: Mapping[str, Any] = {} if is_ours(declared) else getattr(declared, "model_fields", {})
        users = [each for each in declared.__mro__ if not is_ours(each)]
        keys = fields.keys() & {key for each in users for key in getattr(each, "__annotations__", ())}
        for base in declared.__mro__:
            for key in sorted(keys):
                if base not in users and callable(vars(base).get(key)):
                    hidden = f"hides the function {base.__name__}.{key}"
                    msg = f"{place}: the key {key!r} of {declared.__name__} {hidden}; name the key otherwise"
                    raise InputError(msg)
        try:
            for key in keys:
                fields[key].validate_default = True
            declared.model_rebuild()
        except Exception as error:
            name, file = getattr(error, "name", None), sys.modules[declared.__module__].__file__ or ""
            lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines() if name else []
            use = re.compile(rf":.*\b{re.escape(name or '')}\b")
            line = next((f":{at}" for at, text in enumerate(lines, 1) if use.search(text)), "")
            problem = str(error).partition("\n")[0]
            msg = f"{place}{line}: {declared.__name__} has an annotation that cannot be used: {problem}"
            raise InputError(msg) from error
    return declared


def answer(function: Callable[..., object], of: type[T] | tuple[type[T], ...], *given: object) -> T:
    """Call a function of an extension.

    `of`: what it should give, one of several; looked at if it is a user's.
    Raises InputError, with its place, if it is a user's and gives something else, or raises what is no error of
        fabricsim.
    """
    with _blamed(function):
        found = function(*given)
    return _required(function, of, found)


def answers(function: Callable[..., Any], of: type[T] | tuple[type[T], ...], *given: object) -> Iterator[T]:
    """Call a function of an extension that gives several things; otherwise as `answer`."""
    with _blamed(function):
        for found in function(*given):
            yield _required(function, of, found)


def require_functions(declares: str, **given: object) -> None:
    """Refuse what should be a function and is none, when it is declared, where an error has the line of a user's file.

    `declares`: what has them, such as ``"schedule 'mine'"``.
    `given`: the functions, by the names of their keys.
    """
    for name, each in given.items():
        if not callable(each):
            raise InputError(f"{declares}: {name} is {each!r}; give a function")


def place_of(function: Callable[..., object]) -> str:
    """Write the file and line of a user's function as messages begin, ``"mine.py:7: "``; empty for fabricsim's own."""
    file, line = (None, None) if is_ours(function) else _place(function)
    return f"{file}:{line}: " if file else ""


def is_ours(declared: object) -> bool:
    """Whether a class or function is one of fabricsim, not of a user or of another distribution."""
    return getattr(declared, "__module__", "").startswith("fabricsim.")


def _required(function: Callable[..., object], of: type[T] | tuple[type[T], ...], found: object) -> T:
    if is_ours(function) or isinstance(found, of):
        return cast("T", found)
    wanted = " or ".join(_called(each) for each in (of if isinstance(of, tuple) else (of,)))
    raise InputError(f"{place_of(function)}{_name(function)} gives {found!r}; it should give {wanted}")


@contextmanager
def _blamed(function: Callable[..., object]) -> Iterator[None]:
    """Name the line of a user's file in which something went wrong; functions of fabricsim may have called it."""
    try:
        yield
    except FabricsimError:
        raise
    except (Exception, SystemExit) as error:
        own, line = (None, None) if is_ours(function) else _place(function)
        file, last = _last_line(error, {own, *(each.module.__file__ for each in _files.values())})
        if file is None and own is None:
            raise
        raise InputError(f"{file or own}:{last or line}: {_name(function)} raises {_said(error)}") from error


def _called(of: type) -> str:
    return "None" if of is NoneType else f"a {of.__module__}.{of.__name__}"


def _name(function: Callable[..., object]) -> str:
    made = getattr(function, "func", function)  # of a functools.partial
    return getattr(made, "__qualname__", type(made).__qualname__)


def _place(function: Callable[..., object]) -> tuple[str | None, int | None]:
    made = getattr(function, "func", function)  # of a functools.partial
    code = getattr(made, "__code__", None) or getattr(vars(type(made)).get("__call__"), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else (None, None)


def _last_line(error: BaseException, files: Collection[str | None]) -> tuple[str | None, int | None]:
    """Find where in some files an error came from."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return (frames[-1].filename, frames[-1].lineno) if frames else (None, None)


def _said(error: BaseException) -> str:
    """Write an error on one line, without pydantic's advice to read its pages."""
    lines = (line.strip() for line in str(error).splitlines())
    kept = [line for line in lines if line and not line.startswith("For further information")]
    return f"{type(error).__name__}: {'; '.join(kept)}"


def _written_in(declared: object) -> set[str]:
    """Find the files of a class, or of the functions that something else holds; a package may only pass it on."""
    held = [declared] if isinstance(declared, type) else [value for value in vars(declared).values() if callable(value)]
    names = {getattr(inspect.unwrap(each), "__module__", None) for each in held}
    files = (getattr(sys.modules.get(name or ""), "__file__", None) for name in names)
    return {file for file in files if file}


_entry_points = cache(entry_points)


class Registry(Generic[T]):
    """What there is of one kind, by name.

    A declaration's name is its ``name``, else that of its module with hyphens; that of an installed one is its entry
    point's, that of a user's file its path.

    `kind`: in the plural; entry points are in the group ``fabricsim.<kind>``.
    `package`: of fabricsim, whose modules hold its own.
    `attribute`: of a module, that holds its declaration; in fabricsim's own also a tuple of several.
    `of`: type of a declaration; of tables of a scenario, whose declarations are classes, their base class.
    """

    def __init__(self, kind: str, package: str, attribute: str, of: type) -> None:
        self._package, self._attribute, self._of = package, attribute, of
        self.kind, self._group = kind, f"fabricsim.{kind}"
        self._by_class = hasattr(of, "model_fields")  # a table of a scenario

    @cached_property
    def own(self) -> dict[str, T]:
        """Those of fabricsim."""
        found: dict[str, T] = {}
        for info in pkgutil.iter_modules(import_module(self._package).__path__):
            declared = getattr(import_module(f"{self._package}.{info.name}"), self._attribute, ())
            for one in declared if isinstance(declared, tuple) else (declared,):
                found[getattr(one, "name", info.name.replace("_", "-"))] = one
        return found

    @cached_property
    def installed(self) -> dict[str, T]:
        """Those of other distributions.

        Raises InputError if one cannot be imported, or has the name of another.
        """
        found: dict[str, T] = {}
        for point in _entry_points().select(group=self._group):
            place = f"entry point {point.name} = {point.value} of {point.dist.name if point.dist else 'a package'}"
            if point.name in self.own or point.name in found:
                raise InputError(f"{place}: {self.kind} of that name are there already; uninstall it, or rename it")
            try:
                declared = point.load()
            except (Exception, SystemExit) as error:
                msg = f"{place}: cannot be imported: {type(error).__name__}: {error}; repair or uninstall it"
                raise InputError(msg) from error
            found[point.name] = self._declared(declared, place)
        return found

    def all(self) -> dict[str, T]:
        """All that are known: fabricsim's own, installed ones, and those of files that were run."""
        found = self.own | self.installed
        for name, file in _files.items():
            with suppress(InputError):  # which `find` raises for whoever names that file
                found[name] = self._declared(file.module, name)
        return found

    def find(self, name: str) -> T | None:
        """Return one by its name; None if it is not known.

        Raises InputError if a file of that name was run, and declares none.
        """
        if name in self.own:
            return self.own[name]
        return self._declared(_files[name].module, name) if name in _files else self.installed.get(name)

    def digest(self, name: str) -> str | None:
        """SHA-256 of the file that declares what is not fabricsim's own; None if it is, or is not known."""
        if name in _files:
            return _files[name].digest
        if name in self.own or name not in self.installed:
            return None
        (point,) = _entry_points().select(group=self._group, name=name)
        files = _written_in(self.installed[name]) or {sys.modules[point.module].__file__ or ""}
        return hashlib.sha256(b"".join(Path(file).read_bytes() for file in sorted(files))).hexdigest()

    def _declared(self, found: object, place: str) -> T:
        declared = getattr(found, self._attribute, None) if isinstance(found, ModuleType) else found
        is_class = isinstance(declared, type) and issubclass(declared, self._of)
        if is_class if self._by_class else isinstance(declared, self._of):
            return cast("T", _completed(declared, place))
        what = "is missing" if declared is None else f"is {declared!r}"
        kind = "a subclass of" if self._by_class else "a"
        msg = f"{place}: {self._attribute} {what}; it should be {kind} {self._of.__module__}.{self._of.__name__}"
        raise InputError(msg)
