/* Commit, alone and in two phases. The server calls nearly all of these functions. */
#ifndef EVENKEEL_TWO_PHASE_H
#define EVENKEEL_TWO_PHASE_H
#include "engine.h"

struct Trx;

/* X/Open's codes for the outcome of a transaction. */
enum { XA_OK= 0, XAER_RMERR= -3, XAER_NOTA= -4 };

/* Waits until a commit of the engine alone is as durable as the settings say. */
int commit_durably(uint64_t commit, ek_error *error);

/* Rolls the connection's prepared transaction back. */
int rollback_prepared(Trx *trx, ek_error *error);

int evenkeel_prepare(handlerton *, THD *thd, bool all);
void evenkeel_commit_ordered(handlerton *, THD *thd, bool all);
int evenkeel_commit(handlerton *, THD *thd, bool all);
int evenkeel_recover(handlerton *, XID *list, uint len);
int evenkeel_commit_by_xid(handlerton *, XID *xid);
int evenkeel_rollback_by_xid(handlerton *, XID *xid);
void evenkeel_checkpoint_request(void *cookie);
void evenkeel_pre_shutdown();
bool evenkeel_flush_logs(handlerton *);
#endif
