"""Jobs that ship with the pipeline, from ``paceline pipeline`` and ``spark-submit``."""
