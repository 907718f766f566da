"""What a process imports that workers of a sweep are copied from: all that runs need, with the kernels in memory."""

import gc
from contextlib import suppress

from fabricsim.errors import FabricsimError
from fabricsim.jit.compile import is_compiled
from fabricsim.run import pipeline
from fabricsim.run.sweeps import runs  # noqa: F401  so that workers have it

if is_compiled("flow"):
    with suppress(FabricsimError):  # workers say of each run what is wrong
        pipeline.simulate(pipeline.load("gpt2-medium-dp"))
gc.freeze()  # what all copies share stays as it is, rather than being looked through and copied by each
