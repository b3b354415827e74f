"""Acceptance learned from traffic: by class and draft position, from what requests report or replicas count. Pure."""

from adaptive_gamma.routing.learn.learned import LearnedCurve

__all__ = ["LearnedCurve"]
