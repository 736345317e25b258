/* Handles of the engine that are closed at the end of their block, also after an exception. */
#ifndef EVENKEEL_OWNED_H
#define EVENKEEL_OWNED_H
#include "engine.h"
#include <memory>

struct Owned_end
{
  void operator()(ek_row *row) const { ek_row_free(row); }
  void operator()(ek_scan_handle *scan) const { ek_scan_free(scan); }
  void operator()(ek_plan *plan) const { ek_plan_free(plan); }
  void operator()(ek_table *table) const { ek_table_free(table); }
  /* Ends a transaction that only reads. */
  void operator()(ek_txn *txn) const
  {
    ek_error error;
    if (ek_rollback(txn, &error))
      report("end of a read", error);
  }
};

typedef std::unique_ptr<ek_row, Owned_end> Owned_row;
typedef std::unique_ptr<ek_scan_handle, Owned_end> Owned_scan;
typedef std::unique_ptr<ek_plan, Owned_end> Owned_plan;
typedef std::unique_ptr<ek_txn, Owned_end> Owned_txn;
typedef std::unique_ptr<ek_table, Owned_end> Owned_table;
#endif
