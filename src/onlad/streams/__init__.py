"""Streams as they come: files, pipes and brokers in, verdicts as lines out."""
