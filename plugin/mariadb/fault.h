/* Faults that tests plant in the plugin. Only a build with planted faults (build.sh) contains them. */
#ifndef EVENKEEL_FAULT_H
#define EVENKEEL_FAULT_H
#ifdef EVENKEEL_PLANTED
#include "server.h"

/* Counts down: the `new` of the plugin at which it reaches 0 throws, once; 0 arms none. */
extern ulonglong fault_new;
/* Each change of a row fails with this code; a negative value arms none. */
extern int fault_code;
/* So many milliseconds a query of INFORMATION_SCHEMA uses the database before it reads. */
extern uint fault_pause_ms;

/* True, with `error` set, if a change is to fail. */
bool fault_of_change(ek_error *error);
#endif
#endif
