"""Tables other than scenarios, checked: files of sweeps, price lists."""

from typing import TypeVar

from pydantic import ValidationError

from fabricsim.errors import Mistake, ScenarioError
from fabricsim.scenario.base import Spec
from fabricsim.scenario.explain import explain
from fabricsim.scenario.tree import TreeNode, plain, where

S = TypeVar("S", bound=Spec)


def validated(tree: TreeNode, model: type[S], what: str) -> S:
    """Make a table, which people call `what`, into its model. Raises ScenarioError with the place of each mistake."""
    try:
        return model.model_validate(plain(tree))
    except ValidationError as error:
        mistakes = []
        for one in explain(error, model):
            parts = one.key.replace("[", ".").replace("]", "").split(".")
            key = tuple(int(part) if part.isdecimal() else part for part in parts)
            mistakes.append(Mistake(one.key, one.problem, one.way_out, where(tree, key)))
        raise ScenarioError(mistakes, what) from error
