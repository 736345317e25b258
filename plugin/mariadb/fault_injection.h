/* Faults planted on purpose, to see that the tests catch them: scripts/test_planted.py builds the plugin with
   EVENKEEL_PLANTED defined, into a directory of its own, and names one fault by the variable of that name in
   the server's environment. Any other build has nothing of it. */
#ifndef EVENKEEL_FAULT_INJECTION_H
#define EVENKEEL_FAULT_INJECTION_H

#ifdef EVENKEEL_PLANTED
#include <stdlib.h>
#include <string.h>

static inline bool plant(const char *fault)
{
  static const char *const armed= getenv("EVENKEEL_PLANTED");
  return armed && strcmp(armed, fault) == 0;
}
#else
#define plant(fault) false
#endif

#endif
