"""Samples outside an agent: live ones for `carico top` and `carico record`, recorded ones for `carico replay`.

live        samples and pod counts of this machine, tick by tick
format      the file format: writes it, loads any version
lines       parses gzip over lines of JSON
chunks      parses the older binary format
plain_json  parses plain JSON
playback    a recording as input of the pipeline
plot        a plot of a replayed recording
"""
