/* Faults that tests plant in the plugin: in a build with planted faults (build.sh), and nothing of it in
   another one. */
#ifndef EVENKEEL_FAULT_H
#define EVENKEEL_FAULT_H
#ifdef EVENKEEL_PLANTED
#include "server.h"

/* The so manieth `new` of the plugin from now on throws, once; 0: none does. It counts down. */
extern ulonglong fault_new;
/* Each change of a row fails with this code; negative: none does. */
extern int fault_code;

/* True, with the error, if a change is to fail. */
bool fault_of_change(ek_error *error);
#endif
#endif
