"""The simulation itself: SimPy clock, replay of programs, flow engine, taps on links."""
