"""How users write programs: each style turns user code into moves that the core decides on."""
