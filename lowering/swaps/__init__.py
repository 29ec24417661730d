"""What happens when somebody assigns a child of a lowered module, or registers a hook.

Everything is asked before anything changes.
"""
