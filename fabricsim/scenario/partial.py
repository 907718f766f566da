"""What can be said of a scenario that has mistakes: its good values, and which ones are not settled."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from fabricsim.scenario.base import OneOf, Spec
from fabricsim.scenario.suggest import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from pydantic.fields import FieldInfo

    from fabricsim.errors import Mistake


class Unsettled(Exception):  # noqa: N818  not an error: it says that a check cannot be made
    """The value asked for is wrong or missing, so nothing can be said that depends on it."""


class Partial:
    """Stands in for a `Spec` whose tables have mistakes.

    Good values read as they do from the model; asking for any other raises `Unsettled`. A value that
    was left out counts as its default, unless an unknown key looks like it, misspelt.

    `model`: what the tables should be.
    `tables`: what was written.
    `broken`: tables, as key paths, whose library file was not found: their defaults are not settled.
    `path`: of `tables` in the scenario.
    """

    def __init__(
        self,
        model: type[Spec],
        tables: Mapping[str, Any],
        broken: AbstractSet[tuple[str, ...]] = frozenset(),
        path: tuple[str, ...] = (),
    ) -> None:
        self.model_fields_set = set(tables) & set(model.model_fields)
        self._model = model
        self._values: dict[str, Any] = {}
        misspelt = {closest(key, model.model_fields) for key in tables if key not in model.model_fields}
        for name, info in model.model_fields.items():
            if name in tables:
                self._take(name, tables[name], broken, path)
            elif not (info.is_required() or name in misspelt or is_within(path, broken)):
                with suppress(KeyError, Unsettled):  # a default that hangs on another key, which is wrong
                    self._values[name] = info.get_default(call_default_factory=True, validated_data=self._values)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The model's class, so that ``super()`` in its methods takes what stands in for it."""
        return self._model

    def _take(self, name: str, value: object, broken: AbstractSet[tuple[str, ...]], path: tuple[str, ...]) -> None:
        nested = table_type(self._model.model_fields[name], value) if isinstance(value, dict) else None
        if nested is not None and isinstance(value, dict):
            self._values[name] = Partial(nested, value, broken, (*path, name))
            return
        try:
            self._values[name] = _adapter(self._model, name).validate_python(value)
        except ValidationError:
            return

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  fields are of many types
        """Return a good value, a property or method that works with good values, or what the model's class says."""
        if name in self._values:
            return self._values[name]
        derived = getattr(self._model, name, None)
        if isinstance(derived, property) and derived.fget is not None:
            return derived.fget(self)
        if isinstance(derived, FunctionType):
            return MethodType(derived, self)
        if derived is not None and name in self._model.__class_vars__:
            return derived
        raise Unsettled(name)


def settled(checks: Iterable[Callable[[], Iterable[Mistake]]]) -> list[Mistake]:
    """Run checks, each as far as the values it asks for are settled, and gather what they find."""
    mistakes: list[Mistake] = []
    for check in checks:
        with suppress(Unsettled):
            for mistake in check():
                mistakes.append(mistake)  # noqa: PERF402  what was found before a check ends is kept
    return mistakes


@cache
def _adapter(model: type[Spec], name: str) -> TypeAdapter[Any]:
    info = model.model_fields[name]
    return TypeAdapter(info.rebuild_annotation(), config=None if spec_type(info.annotation) else {"strict": True})


def is_within(path: tuple[str | int, ...], tables: AbstractSet[tuple[str, ...]]) -> bool:
    """Whether `path` is one of the tables or leads into one."""
    return any(path[:depth] in tables for depth in range(len(path) + 1))


def spec_types(annotation: object) -> tuple[type[Spec], ...]:
    """Return the models in a field's annotation: of ``Nic`` and of ``Nic | None`` it is ``Nic`` alone."""
    if get_origin(annotation) in {tuple, dict}:
        return ()
    candidates = (annotation, *get_args(annotation))
    return tuple(candidate for candidate in candidates if isinstance(candidate, type) and issubclass(candidate, Spec))


def spec_type(annotation: object) -> type[Spec] | None:
    """Return the model in a field's annotation; None if there is none, or if several are to choose from."""
    types = spec_types(annotation)
    return types[0] if len(types) == 1 else None


def tagged(info: FieldInfo) -> Mapping[str, type[Spec]]:
    """Return the models that a field chooses from by a key of the table, by the value of that key."""
    for choice in _registries(info):
        return choice.models()
    if not isinstance(info.discriminator, str):
        return {}
    models = spec_types(info.annotation)
    return {tag: model for model in models for tag in get_args(model.model_fields[info.discriminator].annotation)}


def chosen_by(info: FieldInfo) -> str | None:
    """Return the key that chooses among the models of a field; None if it has one model only."""
    for choice in _registries(info):
        return choice.key
    return None if info.discriminator is None else str(info.discriminator)


def _registries(info: FieldInfo) -> list[OneOf]:
    return [item for item in info.metadata if isinstance(item, OneOf)]


def table_type(info: FieldInfo, table: Mapping[str, Any]) -> type[Spec] | None:
    """Return the model of a table as it was written; None if a field has none, or its choice is none."""
    key = chosen_by(info)
    if key is None:
        return spec_type(info.annotation)
    tag = table.get(key)
    return tagged(info).get(tag) if isinstance(tag, str) else None
