"""Envoy as the data path: the decision goes into its files, and no Python is run for a request."""
