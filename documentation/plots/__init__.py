"""The pictures in the documentation, drawn from the code and the shipped policies.

``python -m documentation.plots`` (``make plots``) writes them to ``docs/plots``; the same versions of the libraries
write the same bytes.
"""

from documentation.plots.pictures import FOLDER, PICTURES, draw

__all__ = ["FOLDER", "PICTURES", "draw"]
