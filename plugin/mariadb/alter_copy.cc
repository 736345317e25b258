/* ALTER TABLE that copies: rows on their way into the new table. The server says where the copy begins and ends. In
   between no other connection knows the table, and it is dropped if the statement fails. So the rows are no part of
   the statement's transaction, are not locked, and need next to no undo. Indexes are built at the end, in one pass
   over the rows, which finds the duplicates of unique keys. The server changes its definition after all of it is
   durable. After a crash the server's DDL log drops the new table. */
#include "ha_evenkeel.h"
#include "ddl.h"
#include "entry.h"
#include "foreign.h"
#include "index_build.h"
#include "owned.h"
#include "transaction.h"

static void add_name(void *to, ek_bytes name)
{
  static_cast<std::vector<std::string> *>(to)->emplace_back((const char *) name.ptr, name.len);
}

bool server_checks_keys(const TABLE_SHARE *share)
{
  return share->long_unique_table || share->period.unique_keys;
}

/* Four kinds of copy are left to row inserts. The server does not ask whether the copy succeeded for partitions
   that an ALTER makes next to others. The row of a sequence is written in a transaction of its own. With IGNORE,
   rows with duplicate keys are left out, so duplicates must be found as the rows arrive. The fourth are the rows of a
   chunked table. */
void ha_evenkeel::begin_copy(bool ignore)
{
  if (m_copy || !evenkeel_db || !copies_table(ha_thd()) || server_checks_keys(table_share) ||
      table_share->table_type == TABLE_TYPE_SEQUENCE || m_name.find("#TMP#") != std::string::npos)
    return;
  ek_error error;
  /* The engine's bulk copy knows no chunks. The rows may need any number of chunks. */
  if (m_chunked)
  {
    if (ek_txn *txn= transaction(&error))
      ek_set_chunk_limit(txn, 0);
    return;
  }
  std::unique_ptr<Build> build(new Build(ha_thd()));
  if (build->begin_copy(m_name, ignore))
  {
    /* Then the rows are inserted one by one. */
    report("ALTER TABLE that copies", build->error);
    return;
  }
  build->to_copy= m_expected_rows;
  build->tables.push_back({m_name, {}});
  calling_back([&] { ek_copy_late_indexes(build->copy, &build->names, callback<add_name>); });
  build->show();
  m_copy= std::move(build);
}

/* Prepares the source table before its first row is read. A transaction that still has its metadata lock has no
   undecided changes of the table; one prepared by XA whose metadata lock is gone may have some. The snapshot of each
   partition is taken after that transaction has ended. */
int ha_evenkeel::begin_copied(ek_error *error)
{
  const ek_schema_wait wait= schema_wait(ha_thd());
  if (ek_wait_unchanged(evenkeel_db, name(), &wait, error))
    return -1;
  m_own= ek_begin(evenkeel_db, EK_READ_COMMITTED, 0, error);
  return m_own ? 0 : -1;
}

int ha_evenkeel::copy_row(const Values &row)
{
  ek_error error;
  if (ek_copy_row(m_copy->copy, row.data(), row.size(), &error))
    return fail(error);
  m_copy->copied.fetch_add(1, std::memory_order_relaxed);
  if (int failed= changed(false))
    return failed;
  return table->found_next_number_field ? number_written() : 0;
}

/* All rows are in the table. An error fails the statement. */
int ha_evenkeel::end_copy()
{
  if (!m_copy)
    return add_keys_of_copy(ha_thd(), m_name);
  const std::unique_ptr<Build> build= std::move(m_copy);
  THD *thd= ha_thd();
  build->start(thd);
  if (build->wait(thd, EK_BUILD_DONE))
    return copy_failed(build.get());
  ek_error error;
  /* Transactions that began earlier see the rows of a temporary table, too. */
  if (table_share->tmp_table && !is_copy(m_name) && ek_readable_from(evenkeel_db, name(), 0, &error))
    return fail(error);
  return add_keys_of_copy(thd, m_name);
}

/* Reads the row with this clustered key into the record. */
bool ha_evenkeel::copied_row(const std::string &key)
{
  ek_error error;
  const Owned_txn txn(ek_begin(evenkeel_db, EK_READ_COMMITTED, 0, &error));
  if (!txn)
    return false;
  table->use_all_columns();
  return ek_get(txn.get(), m_table, ek_text(key), EK_LOCK_NONE, m_row, &error) == 1 &&
         !fill(table->record[0], m_row, false) &&
         !(table->vfield && table->update_virtual_fields(table->file, VCOL_UPDATE_FOR_READ));
}

/* The error for the server to print; all rows are in the table. */
int ha_evenkeel::copy_failed(Build *build)
{
  const ek_error &error= build->error;
  if (thd_kill_level(ha_thd()))
    return HA_ERR_ABORTED_BY_USER;
  if (error.kind != EK_DUPLICATE)
    return fail(error);
  fail(error);
  std::string in, key;
  const bool known= m_duplicate < table_share->keys && build->duplicate(&in, &key) &&
                    copied_row(key);
  if (known && !table->part_info)
    return HA_ERR_FOUND_DUPP_KEY;
  /* For a partitioned table the server would ask the partition that was written last. */
  if (known)
    print_keydup_error(table, &table->key_info[m_duplicate],
                       ER_THD(ha_thd(), ER_DUP_ENTRY_WITH_KEY_NAME), MYF(0));
  else
    my_printf_error(ER_DUP_ENTRY, "Duplicate entry for key '%-.192s'", MYF(0), error.index);
  return HA_ERR_GENERIC;
}
