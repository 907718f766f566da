"""The packet engine in plain SimPy: slow, readable, and what the compiled one must equal event by event.

`docs/explanation/packet-engine.md` says in words what is said here in Python.
"""

from __future__ import annotations

from fabricsim.engine.reference.network import Reference

__all__ = ["Reference"]
