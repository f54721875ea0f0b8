"""What was found, for others: verdicts as lines, pictures, and measures against labels."""
