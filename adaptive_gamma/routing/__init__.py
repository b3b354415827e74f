"""Where a request goes, as pure functions: no clock, no socket, no file."""

from adaptive_gamma.routing.decision import Candidate, Decision, RequestNeeds
from adaptive_gamma.routing.replica import GammaSchedule, GammaSetting, Pool, ReplicaState

__all__ = ["Candidate", "Decision", "GammaSchedule", "GammaSetting", "Pool", "ReplicaState", "RequestNeeds"]
