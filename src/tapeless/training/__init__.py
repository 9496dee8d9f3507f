"""Whole training steps: forward, backward and update as one program."""
