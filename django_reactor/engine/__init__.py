"""Carries decisions out: runs bodies, writes entries, moves executions. Imports neither Django nor an adapter."""
