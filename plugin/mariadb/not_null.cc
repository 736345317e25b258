/* Columns that an ALTER TABLE makes NOT NULL while others write. Nothing that is stored changes, but no row may have
   NULL there. Existing rows are read in pieces, and writers report the NULLs that they write meanwhile. Both
   together miss nothing: when the watch begins no transaction has uncommitted changes of the table, so only a
   watched writer can put NULL into a row that was already read. A NULL that its writer takes back is also reported:
   the ALTER then fails and can be repeated. */
#include "not_null.h"
#include "owned.h"
#include "transaction.h"
#include <list>
#include <mutex>

/* Rows that are read with one snapshot, and between two looks for a KILL. */
static const uint ROWS_A_PIECE= 1000;

std::atomic<uint> null_watches{0};
static std::mutex watches_mutex;
static std::list<Null_watch *> watches;

Null_watch::Null_watch(const std::string &of, const std::vector<uint> &numbers,
                       const std::vector<std::string> &called)
    : table(of), fields(numbers), names(called)
{
  std::lock_guard<std::mutex> guard(watches_mutex);
  watches.push_back(this);
  null_watches++;
}

Null_watch::~Null_watch()
{
  std::lock_guard<std::mutex> guard(watches_mutex);
  watches.remove(this);
  null_watches--;
}

void see_nulls(const std::string &table, const std::function<bool(uint field)> &may_be_null)
{
  std::lock_guard<std::mutex> guard(watches_mutex);
  for (Null_watch *watch : watches)
    if (watch->table == table)
      for (size_t i= 0; i < watch->fields.size(); i++)
        if (size_t nothing= Null_watch::NOTHING; may_be_null(watch->fields[i]))
          watch->seen.compare_exchange_strong(nothing, i);
}

/* Reads a piece of rows behind the key `last`, which becomes the key of the last row read. Returns their number,
   which is lower than a piece at the end; -1 on error. It ends at the first NULL. */
static int64_t read_piece(ek_table *table, const std::vector<uint32_t> &columns,
                          std::string *last, bool *has_null, Null_place *place, ek_error *error)
{
  const Owned_txn txn(ek_begin(evenkeel_db, EK_READ_COMMITTED, 0, error));
  if (!txn)
    return -1;
  const ek_bound all= {EK_UNBOUNDED, nullptr, 0};
  const Owned_scan scan(ek_scan(txn.get(), table, {nullptr, 0}, &all, &all, 0, error));
  const Owned_row row(ek_row_new());
  const Owned_plan plan(ek_plan_new(columns.data(), columns.size()));
  std::vector<ek_value> values(columns.size());
  bool failed= !scan || (!last->empty() && ek_scan_resume(scan.get(), ek_text(*last), error));
  int64_t rows= 0;
  while (!failed && !*has_null && rows < ROWS_A_PIECE)
  {
    const int found= ek_scan_next(scan.get(), row.get(), error);
    if (!found)
      break;
    ek_bytes key;
    failed= found < 0 || ek_row_values(row.get(), plan.get(), &key, values.data(), error) < 0;
    if (failed)
      break;
    for (size_t i= 0; i < values.size() && !*has_null; i++)
      if (values[i].kind == EK_NULL)
      {
        *has_null= true;
        place->column= i;
      }
    last->assign((const char *) key.ptr, key.len);
    rows++;
    place->row+= !*has_null;
  }
  return failed ? -1 : rows;
}

Nulls find_nulls(THD *thd, const std::string &table, const std::vector<uint32_t> &columns,
                 Null_place *place, ek_error *error)
{
  const Owned_table named(ek_table_new(ek_text(table)));
  const int64_t there= ek_rows(evenkeel_db, named.get(), nullptr, error);
  const uint64_t total= MY_MAX(there, 1);
  uint64_t done= 0;
  std::string last;
  bool has_null= false;
  int64_t rows= ROWS_A_PIECE;
  thd_proc_info(thd, "reading rows for NULL");
  while (!has_null && rows == ROWS_A_PIECE)
  {
    if (thd_kill_level(thd))
      return NULLS_KILLED;
    rows= read_piece(named.get(), columns, &last, &has_null, place, error);
    if (rows < 0)
      return NULLS_UNKNOWN;
    done+= (uint64_t) rows;
    thd_progress_report(thd, MY_MIN(done, total), total);
  }
  return has_null ? HAS_NULL : NO_NULL;
}
