"""What operators do besides computing, and the one dependency relation built on it."""
