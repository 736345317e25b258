/* Faults planted on purpose, to show that the tests catch them. scripts/test_planted.py builds the plugin with
   EVENKEEL_PLANTED defined, into a directory of its own, and names one fault in the server's option --evenkeel-planted
   or in its environment variable EVENKEEL_PLANTED. No other build contains this code. */
#ifndef EVENKEEL_FAULT_INJECTION_H
#define EVENKEEL_FAULT_INJECTION_H

#ifdef EVENKEEL_PLANTED
#include <string.h>

/* The fault that is armed, or null. */
extern char *planted;

static inline bool plant(const char *fault)
{
  return planted && strcmp(planted, fault) == 0;
}
#else
#define plant(fault) false
#endif

#endif
