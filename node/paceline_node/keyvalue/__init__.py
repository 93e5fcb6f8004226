"""Small replicated tables in the internal topic ``__tables``."""
