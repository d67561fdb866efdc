"""Configuration of this project's own tests."""

pytest_plugins = ["pytester"]
