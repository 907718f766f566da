"""The packet engine against closed forms and other packet simulators."""

from fabricsim.studies.peers.study import STUDY

__all__ = ["STUDY"]
