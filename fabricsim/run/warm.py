"""Compiling of the kernels before they are needed."""

from fabricsim.jit.compile import is_compiled
from fabricsim.run.pipeline import load, simulate


def compile_kernels(engine: str) -> None:
    """Compile the kernels of an engine, unless an earlier run has."""
    if not is_compiled(engine):
        simulate(load("gpt2-medium-dp", [f"engine={engine}"]))
