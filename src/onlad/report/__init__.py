"""The outlet: verdicts as records, lines and pictures, and their measures against labels."""
