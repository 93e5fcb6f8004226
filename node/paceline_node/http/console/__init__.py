"""The console: pages for browsers, which show the documents of the API."""
