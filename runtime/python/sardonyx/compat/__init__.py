"""Interfaces of other runtimes over this one."""
