"""A production node in a world that goes wrong on command. See README.md."""
