"""HTTP as a client, for pages and long answers: engines' metrics, the API server of a cluster."""

from adaptive_gamma.web.client import WebAnswer, WebClient

__all__ = ["WebAnswer", "WebClient"]
