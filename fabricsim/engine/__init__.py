"""The simulation itself: SimPy's face of it, and the engines behind that."""
