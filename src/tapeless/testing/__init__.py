"""For authors of rules and passes."""
