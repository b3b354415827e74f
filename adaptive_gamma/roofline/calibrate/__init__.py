"""Calibration: fit the free numbers of a step time, a drafter and acceptance to what a server was seen to do.

Imported only where it is used, for it brings scipy's optimisers.
"""

from adaptive_gamma.roofline.calibrate.calibration import FAR, POOR_FIT, Calibration, Residual
from adaptive_gamma.roofline.calibrate.catalogue import families_for, family_named
from adaptive_gamma.roofline.calibrate.choose import RankedModel, calibrate, compare_models
from adaptive_gamma.roofline.calibrate.drafters import DRAFTER_KINDS, DrafterKind
from adaptive_gamma.roofline.calibrate.family import StepFamily
from adaptive_gamma.roofline.calibrate.known import Experts, Machine, ModelNumbers
from adaptive_gamma.roofline.calibrate.left_out import LeftOut
from adaptive_gamma.roofline.calibrate.measured import PlainPoolFamily, TableFamily, monotone_table
from adaptive_gamma.roofline.calibrate.observation import ALL_CLASSES, Observation
from adaptive_gamma.roofline.calibrate.parameter import FittedParameter
from adaptive_gamma.roofline.calibrate.parametric import LinearFamily, MoeFamily, RooflineFamily
from adaptive_gamma.roofline.calibrate.refusal import UnderDetermined

__all__ = [
    "ALL_CLASSES",
    "DRAFTER_KINDS",
    "FAR",
    "POOR_FIT",
    "Calibration",
    "DrafterKind",
    "Experts",
    "FittedParameter",
    "LeftOut",
    "LinearFamily",
    "Machine",
    "ModelNumbers",
    "MoeFamily",
    "Observation",
    "PlainPoolFamily",
    "RankedModel",
    "Residual",
    "RooflineFamily",
    "StepFamily",
    "TableFamily",
    "UnderDetermined",
    "calibrate",
    "compare_models",
    "families_for",
    "family_named",
    "monotone_table",
]
