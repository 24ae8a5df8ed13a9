"""Bytes to types and back. Decoding checks everything that can be checked without knowing other messages.

Two things can be wrong with bytes from outside. Bytes that are no message at all raise `Undecodable`: the caller ends
the stream. A message that says something impossible raises `RefusedMessage`: it is answered in-band, and counted.
"""
