"""How kernels are compiled, and where compiled programs are kept."""
