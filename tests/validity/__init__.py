"""Does the guarantee hold? Thousands of calibrations in worlds whose risks are known exactly."""
