"""Commands that are about `carico` itself; the others live with what they are about."""
