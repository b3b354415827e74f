"""adaptive-gamma: the speculation length of LLM serving, chosen by load and acceptance."""

from adaptive_gamma._version import __version__

__all__ = ["__version__"]
