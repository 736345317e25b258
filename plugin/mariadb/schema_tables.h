/* INFORMATION_SCHEMA.EVENKEEL_*. */
#ifndef EVENKEEL_SCHEMA_TABLES_H
#define EVENKEEL_SCHEMA_TABLES_H
#include "server.h"

int evenkeel_tables_init(void *);
int evenkeel_indexes_init(void *);
int evenkeel_foreign_init(void *);
int evenkeel_chunks_init(void *);
int evenkeel_jobs_init(void *);
int evenkeel_waits_init(void *);
int evenkeel_trx_init(void *);
int evenkeel_locks_init(void *);
#endif
