"""The command line ``paceline``: one module a command group, loaded when it is used."""
