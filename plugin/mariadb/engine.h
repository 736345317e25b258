/* The plugin as one engine: its database, settings, and each connection's transaction. */
#ifndef EVENKEEL_ENGINE_H
#define EVENKEEL_ENGINE_H
#include "server.h"
#include <string>

extern handlerton *evenkeel_hton;
extern ek_database *evenkeel_db;

inline ek_bytes ek_text(const std::string &s) { return {(const uint8_t *) s.data(), s.size()}; }

/* A connection's transaction. Made at the first use of a table, freed with the connection. */
struct Trx
{
  ek_txn *txn= nullptr;
  /* Cancels its waits; read by KILL in other threads, under the lock of `kill_query`. */
  ek_canceller_handle *canceller= nullptr;
  uint8_t isolation= EK_REPEATABLE_READ;
  /* Tables in use by the present statement. */
  uint tables_locked= 0;
  /* The present statement changes or locks rows. */
  bool statement_locks= false;
  /* Prepared under this id: then `txn` is gone, the engine keeps it. */
  bool prepared= false;
  std::string xid;
  /* Set by the ordered half of a commit. */
  bool committed= false;
  uint64_t commit= 0;
};

/* The transaction of a connection, begun if need be; null with an error. */
ek_txn *begun(THD *thd, ek_error *error);
/* The connection's record, made if need be. */
Trx *trx_of(THD *thd);
/* A statement uses one more table, or ends its use of one. */
void statement_enters(THD *thd, bool locks);
void statement_leaves(THD *thd);
/* What the statement failed with, as the server's number; tells the server about rolled back
   transactions. */
int handler_error(THD *thd, const ek_error &error);
/* An engine's table for a path of the server's. */
std::string table_name(const char *path);
#endif
