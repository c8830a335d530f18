"""An app whose reactors are carried by workers that are killed at chosen moments."""
