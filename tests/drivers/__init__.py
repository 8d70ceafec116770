"""Simulated driver libraries, written in C, that the real vendor bindings load in tests."""
