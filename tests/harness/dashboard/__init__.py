"""The page in a browser: what its tests, its benchmark and its pictures share.

browser  Debian's Chromium
stage    an embedded API server, agents of simulated nodes and a real `carico scheduler`
"""
