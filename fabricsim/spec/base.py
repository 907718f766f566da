"""The common base of every model in a scenario."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    """A frozen table of settings that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")
