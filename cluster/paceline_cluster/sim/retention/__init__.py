"""Topics that do not keep all that is written to them, who uses them, and how they are judged."""
