"""Acceptance learned from traffic: by class and draft position, from what requests report or replicas count. Pure."""

from adaptive_gamma.routing.learn.follow import TableChange, table_change
from adaptive_gamma.routing.learn.learned import LearnedCurve
from adaptive_gamma.routing.learn.learner import USUAL_PSEUDO_DRAFTS, AcceptanceLearner

__all__ = ["USUAL_PSEUDO_DRAFTS", "AcceptanceLearner", "LearnedCurve", "TableChange", "table_change"]
