"""Programs that measure; each says at its head how it is run. A package, so that no other of this name is found."""
