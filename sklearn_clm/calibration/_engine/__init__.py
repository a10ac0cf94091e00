"""What makes the whole grid fast: bit sets, runs and sums."""
