"""The kernels' text, for Triton's compiler. Wrappers with shapes, dtypes and limits stand in the package above.

Everything here runs once a program: `tl.program_id` says which part of the work is its own. Names in capitals are
known when a kernel is compiled.

Triton compiles a kernel anew for an integer that is 1 or a multiple of 16 and for a pointer's alignment. Where that
would follow from how many requests a step has, or from a tensor's place in a buffer, it is told not to: a kernel is not
to be compiled in the middle of serving.
"""
