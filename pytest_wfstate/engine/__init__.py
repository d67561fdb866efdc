"""Make calls on a store under test, with a time limit, and have each judged as it returns."""
