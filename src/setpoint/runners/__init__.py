"""Everything that can be given a batch and asked for an answer, behind one protocol."""

from setpoint.runners.quiet import switch_telemetry_off

# Here, because Python runs it before any module of this package, and only this package imports those libraries.
switch_telemetry_off()
