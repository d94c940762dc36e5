"""What the intakes of OTLP share: bodies unpacked up to a bound, messages read piece by piece, values as plain ones.

Log records are read in `aiops.wire.otlp_records`, spans in `tracking.traces.otlp`.
"""
