#pragma once

// KEEL_FAST before a function of a test whose loops take longer than what it tests. Tests are compiled with few
// optimisations, and some under sanitizers: here all of the first and none of the second. Loops over plain pointers
// alone gain from it, since functions compiled otherwise are not inlined. Results are the same to the last bit.
#if defined(__GNUC__) && !defined(__clang__)
#define KEEL_FAST __attribute__((optimize("O3"), no_sanitize("address,undefined")))
#else
#define KEEL_FAST
#endif
