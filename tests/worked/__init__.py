"""An app whose reactors real workers run in acceptance tests."""
