"""Effects of operators, and the one dependency relation built on them.

Effects are data on an operator, read from its schema once.  Nothing here reorders or removes a node.
"""
