"""Streams, messages and certificates.

certificates       as some clusters create them: no key identifiers, an intermediate authority
listening          a scheduler that only receives reports, in a thread of its own
messages           reports, models and class costs with the values of the first version's recordings
minimal_authority  certificates as older tools create them
raw_calls          calls whose messages are bytes
report_streams     a scheduler that only receives reports, on the test's event loop
tls                certificates of a server and of nodes
"""
