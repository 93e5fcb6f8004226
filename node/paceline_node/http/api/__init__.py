"""The JSON of a node under /api: what operators ask, in the documents of the commands."""
