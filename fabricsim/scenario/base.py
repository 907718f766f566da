"""The common base of every model in a scenario."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    """A frozen table of settings that refuses keys it does not know.

    Values are taken strictly: ``true`` and ``"4"`` are no numbers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)
