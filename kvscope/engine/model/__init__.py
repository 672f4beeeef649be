"""Models on torch.

Threads of OpenMP that wait spin for 15 ms or so before they sleep. Where other programs run too, a thread that spins
keeps from the core the one that it waits for: on two busy cores a step of SmolLM2 took ten times as long as with this
limit, which is about 20 µs. It must stand in the environment before torch is imported.
"""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "1000")
