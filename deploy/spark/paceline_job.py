"""For spark-submit: ``spark-submit paceline_job.py archive --bootstrap HOST:PORT ...``."""

import sys

from paceline.spark.jobs.commands import main

if __name__ == "__main__":
    sys.exit(main())
