"""The files that measuring leaves behind: curves and operating points, as JSON that a person can read."""
