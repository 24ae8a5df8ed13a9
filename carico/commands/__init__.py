"""Commands about `carico` itself; the other commands are in the packages of their components.

- completion.py: `carico completion`, scripts for bash, zsh and fish
- help.py: `carico help`
- version.py: `carico version`
"""
