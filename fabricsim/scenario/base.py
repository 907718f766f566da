"""The common base of every model in a scenario."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import GetCoreSchemaHandler

    from fabricsim.extensions import Registry


class Spec(BaseModel):
    """A frozen table of settings that refuses keys it does not know.

    Values are taken strictly: ``true`` and ``"4"`` are no numbers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


@dataclass(frozen=True)
class NameIn:
    """Annotates a name of a registry; what is none is refused as a literal would be."""

    registry: Registry[Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401  any type may be annotated
        """Validate the name, then look for it."""

        def known(name: str) -> str:
            if self.registry.find(name) is None:
                raise PydanticKnownError("literal_error", {"expected": ", ".join(self.registry.all())})  # noqa: EM101  a kind
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
