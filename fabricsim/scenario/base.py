"""The common base of every model in a scenario."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import CoreSchema, core_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import GetCoreSchemaHandler


class Spec(BaseModel):
    """A frozen table of settings that refuses keys it does not know.

    Values are taken strictly: ``true`` and ``"4"`` are no numbers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


@dataclass(frozen=True)
class OneOf:
    """Annotates a table whose model is chosen by one of its keys, among those of a registry.

    Attributes
    ----------
    key
        The key that chooses, such as ``"topology"``.
    models
        Gives the models by the values of that key; asked when a scenario is validated for the first time.
    """

    key: str
    models: Callable[[], Mapping[str, type[Spec]]]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401  any type may be annotated
        """Make a union of the models; `source` is their common base."""
        del source
        choices = {name: handler.generate_schema(model) for name, model in self.models().items()}
        return core_schema.tagged_union_schema(choices, self.key)
