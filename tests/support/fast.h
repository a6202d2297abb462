#pragma once

// Put KEEL_FAST before a test function whose loops take longer than the code under test. Tests are compiled with few
// optimisations, and some with sanitizers; KEEL_FAST functions get all optimisations and no sanitizer. It helps only
// loops over plain pointers, because functions compiled with other options are not inlined. Results are bitwise the
// same.
#if defined(__GNUC__) && !defined(__clang__)
#define KEEL_FAST __attribute__((optimize("O3"), no_sanitize("address,undefined")))
#else
#define KEEL_FAST
#endif
