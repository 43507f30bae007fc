"""Contract v2: trials, claims and artifacts, and what judges them."""
