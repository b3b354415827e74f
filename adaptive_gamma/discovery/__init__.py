"""Finding replicas that the configuration does not list: behind a Kubernetes Service, or behind a DNS name."""

from adaptive_gamma.discovery.discovery import Discovery, Prepared
from adaptive_gamma.discovery.endpoints import Endpoint, Found, Replicas, merged, replica_name
from adaptive_gamma.discovery.pace import Backoff, Pace

__all__ = ["Backoff", "Discovery", "Endpoint", "Found", "Pace", "Prepared", "Replicas", "merged", "replica_name"]
