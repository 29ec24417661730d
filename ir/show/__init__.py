"""How values show themselves to people who look: in colours on a terminal, as markup in notebooks.

Each file is one door and is imported when somebody asks for it.  What a value says is its text (``../text``); nothing here is
needed to compute with programs, and nothing is read back.
"""
