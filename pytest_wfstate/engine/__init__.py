"""Make calls on a store under test, with a time limit, and judge what came of them."""
