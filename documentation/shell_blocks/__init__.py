"""Runs the shell and Python blocks of the documentation as a reader would: page by page, in order, each for real.

A block is a fence that says ``sh`` or ``python``. A fence with a title, as ``yaml title="config.yaml"``, is a file that
the reader saves under that name. Comments right before a block say what the runner has to know of it:

``<!-- not run: REASON -->``
    leaves it out.
``<!-- needs PROGRAM: WHAT BRINGS IT -->``
    leaves it out where there is no such program.
``<!-- the reader has:``, shell lines, ``-->``
    make what the page supposes: engines, files, values of variables. They run before the block, in its terminal.
``<!-- goes on until: COMMAND -->``
    of a block that does not end by itself: it has run once the command succeeds, and is then ended, as by its reader.

What is left out is told with its reason, and what was ended is told too. There is no other way out of being run.

``python -m documentation.shell_blocks`` (``make docs-test``) runs all; with names of pages only those.
"""

from documentation.shell_blocks.find import Block, Page, pages, unmarked_commands

__all__ = ["Block", "Page", "pages", "unmarked_commands"]
