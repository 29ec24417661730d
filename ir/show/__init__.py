"""Display values with colours on a terminal and as markup in notebooks.

Each file is imported when it is first needed.
"""
