"""What the documentation is made of beside its own words: reference pages from the code, plots, and the runner of its
shell blocks."""
