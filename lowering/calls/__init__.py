"""Call lowered modules: bind arguments, check input guards, and call modules with a preserved signature."""
