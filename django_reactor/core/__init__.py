"""Pure Python: what a reactor is, what its journal says, and what to do next. Imports neither Django nor a store."""
