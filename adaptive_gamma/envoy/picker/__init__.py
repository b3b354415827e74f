"""Picker mode: a gateway asks over ext_proc where a request goes, and carries it there itself."""

from adaptive_gamma.envoy.picker.admin_app import picker_app
from adaptive_gamma.envoy.picker.picker import Picker
from adaptive_gamma.envoy.picker.server import PickerServer
from adaptive_gamma.envoy.picker.stream import ResponseSide
from adaptive_gamma.envoy.picker.tls import from_files, self_signed

__all__ = ["Picker", "PickerServer", "ResponseSide", "from_files", "picker_app", "self_signed"]
