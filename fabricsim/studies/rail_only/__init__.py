"""Is an any-to-any network needed? Rail-only networks, after Wang et al., arXiv 2307.12169."""

from fabricsim.studies.rail_only.study import STUDY

__all__ = ["STUDY"]
