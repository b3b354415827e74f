"""What ``serve`` is told: the tree of settings and the loader that refuses what it does not know."""
