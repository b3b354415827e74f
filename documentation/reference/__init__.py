"""The pages under ``docs/reference``, made from the code they describe.

``python -m documentation.reference`` (``make reference``) writes them; a test in ``make test`` compares them with what
the code says now.
"""

from documentation.reference.pages import FOLDER, PAGES, pages

__all__ = ["FOLDER", "PAGES", "pages"]
