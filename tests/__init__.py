"""Tests: a package, so that another one of this name, if installed, does not take its place."""
