"""Message sizes, counts and volumes of GPT-NeoX, after Anthony et al., arXiv 2408.10197."""

from fabricsim.studies.anthony2024.study import STUDY

__all__ = ["STUDY"]
