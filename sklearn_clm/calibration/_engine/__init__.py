"""What makes the whole grid fast: bit sets, runs of equal sets, and sums of packed numbers.

A pass per configuration takes K steps of acceptance and K of scoring for each
of the 19,683 configurations of a 27 x 27 x 27 grid. Here,

* acceptance depends on (l1, l2) alone, and is a recursion of four bit operations for each draw on
  whole rows of prompts (`_acceptance`);
* most pairs (l1, l2) accept the same draws of a prompt: of 729 pairs there are 50 to 80 distinct
  sets. A sort of integers that hold set and pair finds them;
* a set score is evaluated once for each distinct *prefix* of accepted draws, two or three for each
  distinct set, and a comparison with all thresholds l3 says which of them it stops at
  (`_stopping`);
* what remains is to add each set's row of results to all pairs that lead to it: a sparse 0-1
  matrix (pairs x sets, which the sort has left in compressed form) times the dense rows, with
  errors, size and draws packed into one float64 and the excess into another.

All of it runs in compiled loops of NumPy and SciPy, on blocks of prompts that stay in the cache.
The loops are so short that threads spend their time handing over the interpreter's lock, so the
work is shared among processes, and only where there is much of it.

What was measured, for n = 1,565, K = 20, the sum and 27 x 27 x 27 configurations on one core
(Xeon, AVX-512): Algorithm 1 in NumPy for each configuration 120 s; the recursion in NumPy for each
pair, with uint32 masks, 1.1 s; this module 0.07 to 0.08 s, of which the sparse product takes 20 %,
acceptance and conflicts 20 %, set scores and their codes 20 %, packed results of each stop 25 %,
the sort 8 %. The same in C, 70 lines with difference arrays over l3, takes 0.03 to 0.04 s, and in
numba 0.05 s after 0.4 s of import and seconds of compilation. A factor of two does not pay for
wheels for every platform, nor for a slow first call; a compiled kernel would be where the next one
comes from.
"""
