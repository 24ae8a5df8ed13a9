"""Measurements that end in figures. `python -m bench` lists them, `python -m bench NAME` runs one.

A benchmark is one file of this folder with a function `run() -> dict` that prints what a person wants to read and
returns the figures; its name has dashes where the file has underscores, and the first line of its docstring is the line
in the list. The last line of output is one JSON object with the name and the figures.
"""
