"""Gathering evidence: files read as streams, servers asked within bounds of size and time."""
