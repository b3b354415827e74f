"""A soak of the whole: ``serve`` as a process in front of engine processes that die, with clients that leave.

``python -m tests.soak --help``; ``make soak`` runs it at its full length.
"""

__all__: list[str] = []
