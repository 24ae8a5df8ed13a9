"""What `carico top` shows on a terminal.

screen          the picture as lines of text
terminal        raw terminal mode and drawing
keys            key names from terminal input
processes       processes of this machine by pod
estimate_lines  estimates as lines of text; also for `carico replay`
"""
