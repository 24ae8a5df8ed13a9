"""Tests of carico.runtime; real.py has a real containerd and a hand that makes pods in it."""
