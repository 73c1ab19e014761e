"""Case studies: whole applications on top of the bus, to run and to copy from."""
