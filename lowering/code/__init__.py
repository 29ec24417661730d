"""Generate code: the source of a body, its compiled function, and the fx graph that users see."""
