"""Programs to read and run: ``python -m examples.demo``, ``examples.quickstart``, ``examples.train``.

One idea: the models are real architectures, built from their configs with random weights; nothing is downloaded.
It is not part of the installed package.
"""
