/* SHOW STATUS and SHOW ENGINE EVENKEEL STATUS. */
#ifndef EVENKEEL_STATUS_H
#define EVENKEEL_STATUS_H
#include "engine.h"

extern st_mysql_show_var status_variables[];

/* For the server. */
bool evenkeel_show_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type what);
#endif
