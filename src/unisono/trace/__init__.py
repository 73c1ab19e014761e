"""The one trace schema and its recorders."""
