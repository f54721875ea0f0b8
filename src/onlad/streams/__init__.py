"""Streams as they come: files, pipes and brokers, read into blocks of samples."""
