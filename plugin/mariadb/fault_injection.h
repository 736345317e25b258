/* Faults planted on purpose, to show that the tests catch them. scripts/test_planted.py builds the plugin with
   EVENKEEL_PLANTED defined, into a directory of its own, and names one fault in the server's environment variable of
   that name. No other build contains this code. */
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
