"""Meshes: tori without the cables from the last of a row to the first."""

from fabricsim.topology.networks.torus import Torus


class Mesh(Torus):
    """A grid of ``dimensions`` that does not wrap around; all else is as in a torus."""

    wraps = False


TOPOLOGY = Mesh
