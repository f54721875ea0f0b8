"""The intake: files, pipes, brokers and messages become blocks of samples."""
