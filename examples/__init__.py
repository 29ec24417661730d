"""Programs to read and run: ``python -m examples.demo``, ``examples.quickstart``, ``examples.train``.

The models are real architectures, built from their configs with random weights; nothing is downloaded.  The examples are not part
of the installed package.
"""
