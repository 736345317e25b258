/* The order in which a replica's workers commit here.

   Workers apply transactions in parallel and commit them in the order of the source: a worker waits until the server
   lets it go on (wait_for_prior_commit). Where the replica does not log what it applies, a transaction over two engines
   is committed in one engine after the other, and InnoDB lets the next worker go on when it has committed, which may
   be before we have. The next transaction, with the replica's position, must not come before it in our log: a crash
   between the two would lose the earlier one, and the position would say that it was applied.

   Such a transaction is in the list from its prepare to its end here. A worker whose turn it is waits for the
   transactions in the list, which all come before its own. They are prepared in this engine and need no more locks, so
   they wait for no later transaction. */
#include "replica_order.h"
#include "fault_injection.h"
#include <condition_variable>
#include <mutex>

static std::mutex order_mutex;
static std::condition_variable order_changed;
/* The transactions that are prepared and not decided, newest first; each has a place of its own. */
static Trx *undecided;
static uint64_t places;

void replica_has_prepared(THD *thd, Trx *trx)
{
  if (!thd->rgi_slave)
    return;
  std::lock_guard<std::mutex> guard(order_mutex);
  trx->place= ++places;
  trx->earlier= undecided;
  undecided= trx;
}

void replica_has_decided(Trx *trx)
{
  if (!trx->place)
    return;
  std::lock_guard<std::mutex> guard(order_mutex);
  Trx **at= &undecided;
  while (*at != trx)
    at= &(*at)->earlier;
  *at= trx->earlier;
  trx->place= 0;
  trx->earlier= nullptr;
  order_changed.notify_all();
}

/* True if the list still has a transaction that got its place no later than this one. */
static bool is_undecided(uint64_t last)
{
  for (const Trx *trx= undecided; trx; trx= trx->earlier)
    if (trx->place <= last)
      return true;
  return false;
}

void replica_awaits_earlier(THD *thd)
{
  if (!thd->rgi_slave || plant("LaterOvertakes"))
    return;
  std::unique_lock<std::mutex> guard(order_mutex);
  const uint64_t last= places;
  if (!is_undecided(last))
    return;
  /* KILL does not end this wait: the transaction would come into the log before an earlier one. */
  const char *before= thd_proc_info(thd, "waiting for an earlier transaction to commit in EVENKEEL");
  order_changed.wait(guard, [last] { return !is_undecided(last); });
  guard.unlock();
  thd_proc_info(thd, before);
}
