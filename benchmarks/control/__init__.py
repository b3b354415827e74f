"""``make control``: the closed loop in simulation, against what it must beat, into docs/control.md."""
