"""Documents of the API as they change, for browsers that stay."""
