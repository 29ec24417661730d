"""What operators do besides computing, and the one dependency relation built on it.

Effects are data on an operator, read off its schema once.  Nothing here reorders or removes a node.
"""
