"""The command line client: the package that users run (mlp_client), and how it is packed into one file."""
