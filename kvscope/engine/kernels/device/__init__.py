"""The kernels' text, for Triton's compiler. Wrappers with shapes, dtypes and limits stand in the package above.

Everything here runs once a program: `tl.program_id` says which part of the work is its own. Names in capitals are
known when a kernel is compiled.
"""
