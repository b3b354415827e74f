"""The admin port: what it answers whatever the process does, and the listener behind it."""

from adaptive_gamma.admin.app import base_app, paged
from adaptive_gamma.admin.port import KEEP_ALIVE_S, AdminPort, Listener, bind

__all__ = ["KEEP_ALIVE_S", "AdminPort", "Listener", "base_app", "bind", "paged"]
