"""Derivative rules: data, not control flow. One file per family; importing this package registers them all."""
