"""Traffic beside a job: patterns and writes to storage, once or again and again."""

from typing import Annotated

from pydantic import Field

from fabricsim.scenario.base import Spec
from fabricsim.scenario.quantity import Duration
from fabricsim.scenario.variation import Numbers


class Background(Spec):
    """Flows that cross the fabric while jobs run.

    ``pattern`` is one of `fabricsim traffic`, or the file of a traffic matrix, over ``ranks`` (all if left out), with
    ``size``, ``flows`` and ``load`` as there. With ``to_host`` there is no pattern: the memory of each host of
    ``ranks`` sends ``size`` to that of one host, as checkpoints are written to storage. All begins at ``start``, and
    with ``every`` again at multiples of it after that, or if that is later when all has arrived, until the jobs are
    done.
    """

    pattern: str | None = None
    to_host: Annotated[int, Field(ge=0)] | None = None
    ranks: Numbers | None = None
    size: str | None = None
    flows: Annotated[int, Field(ge=1)] | None = None
    load: Annotated[float, Field(gt=0)] | None = None
    start: Duration = 0
    every: Duration | None = None
