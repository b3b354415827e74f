"""Finds what silently cancels speculation: in start-up logs, on running servers, in benchmarks.

``gather`` reads files and pages into evidence, ``assemble`` joins it into a case, ``checks`` are pure functions over
that, ``diagnose`` runs them all.
"""

from adaptive_gamma.doctor.assemble import Gathered, assemble
from adaptive_gamma.doctor.case import Case, Replica
from adaptive_gamma.doctor.checks import CHECKS, Check
from adaptive_gamma.doctor.diagnosis import SCHEMA, Diagnosis, diagnose
from adaptive_gamma.doctor.finding import Cost, Evidence, Finding, Fix, Unseen
from adaptive_gamma.doctor.gather.bench import BenchEvidence, read_benches
from adaptive_gamma.doctor.gather.log_file import LogEvidence, cut_short, read_log
from adaptive_gamma.doctor.gather.server import ServerSettings, left_unread, look_at_server
from adaptive_gamma.doctor.gather.unreadable import Unreadable
from adaptive_gamma.doctor.words import diagnosis_text

__all__ = [
    "CHECKS",
    "SCHEMA",
    "BenchEvidence",
    "Case",
    "Check",
    "Cost",
    "Diagnosis",
    "Evidence",
    "Finding",
    "Fix",
    "Gathered",
    "LogEvidence",
    "Replica",
    "ServerSettings",
    "Unreadable",
    "Unseen",
    "assemble",
    "cut_short",
    "diagnose",
    "diagnosis_text",
    "left_unread",
    "look_at_server",
    "read_benches",
    "read_log",
]
