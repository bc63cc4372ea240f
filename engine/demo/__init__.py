"""Demos: real streams, small enough to watch."""

from penstock.demo.play import play

__all__ = ["play"]
