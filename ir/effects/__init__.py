"""Read the effects of an operator from its schema: writes, aliases, random draws, order.

``dependencies`` derives the one dependency relation from these effects; every transformation that moves or drops nodes
uses it.
"""
