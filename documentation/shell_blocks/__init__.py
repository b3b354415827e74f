"""Runs the shell and Python blocks of the documentation as a reader would: page by page, in order, each for real.

A block is a fence that says ``sh`` or ``python``. A fence with a title, as ``yaml title="config.yaml"``, is a file that
the reader saves under that name. A comment right before a block, ``<!-- not run: REASON -->``, leaves it out, and the
runner says so with the reason. There is no other way out of being run.

``python -m documentation.shell_blocks`` (``make docs-test``) runs all; with names of pages only those.
"""

from documentation.shell_blocks.find import Block, Page, pages, unmarked_commands

__all__ = ["Block", "Page", "pages", "unmarked_commands"]
