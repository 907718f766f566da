"""The common base of every model in a scenario."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from fabricsim.extensions import Registry


class Spec(BaseModel):
    """A frozen table of settings that refuses keys it does not know.

    Values are taken strictly: ``true`` and ``"4"`` are no numbers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        """Refuse a constant or a key that is of another type than in the class that has it first."""
        super().__pydantic_init_subclass__(**kwargs)
        for name in cls.__class_vars__:
            found = getattr(cls, name)
            first = next(vars(base)[name] for base in reversed(cls.__mro__) if name in vars(base))
            if not isinstance(first, Mapping | NoneType) and not isinstance(found, type(first)):
                raise TypeError(f"{cls.__name__}.{name} is {found!r}; it should be a {type(first).__name__}")
        for base in cls.__bases__:
            for name, field in getattr(base, "model_fields", {}).items():
                if not _types(cls.model_fields[name].annotation) <= _types(field.annotation):
                    msg = (
                        f"{cls.__name__}.{name} is of another type than {base.__name__}.{name}; call the key otherwise"
                    )
                    raise TypeError(msg)


def _types(annotation: object) -> set[object]:
    """List the types that an annotation allows, without their limits."""
    if get_origin(annotation) is Annotated:
        return _types(get_args(annotation)[0])
    if get_origin(annotation) in {Union, UnionType, Literal}:
        return {each for part in get_args(annotation) for each in _types(part)}
    return {annotation}


@dataclass(frozen=True)
class NameIn:
    """Annotates a name of a registry; what is none is refused as a literal would be."""

    registry: Registry[Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401  any type may be annotated
        """Validate the name, then look for it."""

        def known(name: str) -> str:
            if self.registry.find(name) is None:
                raise PydanticKnownError("literal_error", {"expected": ", ".join(self.registry.all())})
            return name

        return core_schema.no_info_after_validator_function(known, handler(source))


@dataclass(frozen=True)
class OneOf:
    """Annotates a table whose model is chosen by one of its keys, among those of a registry.

    `key`: the key that chooses, such as ``"topology"``.
    `models`: gives the models by the values of that key; asked whenever a table is validated, as users add some.
    """

    key: str
    models: Callable[[], Mapping[str, type[Spec]]]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401  any type may be annotated
        """Validate as a union of the models that there are at that time."""
        del source, handler

        def validated(table: object) -> Any:  # noqa: ANN401  one of the models
            return _union(self.key, tuple(self.models().items())).validate_python(table)

        return core_schema.no_info_plain_validator_function(validated)


class _Union(NamedTuple):
    """Annotates a table whose model is one of those given, as of `OneOf`."""

    key: str
    models: tuple[tuple[str, type[Spec]], ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401  as above
        del source
        choices = {name: handler.generate_schema(model) for name, model in self.models}
        return core_schema.tagged_union_schema(choices, self.key)


@lru_cache(maxsize=64)
def _union(key: str, models: tuple[tuple[str, type[Spec]], ...]) -> TypeAdapter[Any]:
    return TypeAdapter(Annotated[Any, _Union(key, models)])
