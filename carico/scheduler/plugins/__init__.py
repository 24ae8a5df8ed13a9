"""One file per plugin; registry.py knows them by name."""
