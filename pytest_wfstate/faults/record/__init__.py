"""Record what a run does to files, through Python's own calls and through SQLite.

Start with `recorder.Recorder`: a context manager whose `trace()` is the result. A `gate.Gate` may stop or cut each
call.
"""
