"""Display values: colours on a terminal and markup in notebooks.

Each file is imported when it is first needed.
"""
