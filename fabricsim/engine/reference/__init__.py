"""The packet engine in plain SimPy: slow, readable, equal to the compiled one event by event.

`docs/explanation/packet-engine.md` says in words what is said here in Python.
"""

from fabricsim.engine.reference.network import Reference

__all__ = ["Reference"]
