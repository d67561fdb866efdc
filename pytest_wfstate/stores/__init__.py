"""Stores: one folder per backend, one file per contract in each."""
