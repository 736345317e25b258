/* The order in which a replica's workers commit here. */
#ifndef EVENKEEL_REPLICA_ORDER_H
#define EVENKEEL_REPLICA_ORDER_H
#include "transaction.h"

/* Notes that a worker has prepared its transaction, whose commit no binlog orders. */
void replica_has_prepared(THD *thd, Trx *trx);
/* Notes that the transaction is committed or rolled back in this engine. */
void replica_has_decided(Trx *trx);
/* A worker calls this before it prepares or commits its transaction in this engine: waits until every transaction that
   other workers have prepared is decided. */
void replica_awaits_earlier(THD *thd);
#endif
