"""The module tree of a lowered program: modules, their state, conversion and pickling."""
