/* COUNT(*) without a condition: the engine counts the rows, and the server reads none. */
#include "ha_evenkeel.h"
#include <sql_select.h>

/* Is every value of the query a count of all rows: then the server reads no row if it is told their number. It asks
   for the number while it optimizes: also for an EXPLAIN, for a subquery that it may never run, where a condition
   makes the number useless, and where another value of the query makes it read all rows in any case. In those cases
   it is not told. */
static bool wants_only_counts(THD *thd, const TABLE *table)
{
  const LEX *lex= thd->lex;
  SELECT_LEX *query= table->pos_in_table_list->select_lex;
  if (lex->describe || lex->analyze_stmt || lex->limit_rows_examined)
    return false;
  if (query->join->conds || query->having || query->is_subquery_function() ||
      query->leaf_tables.elements != 1)
    return false;
  /* Of a number that it is told FOUND_ROWS() is 0 once an OFFSET leaves it out, and 1 of one that it counts itself. */
  if (query->limit_params.offset_limit)
    return false;
  List_iterator_fast<Item> items(query->item_list);
  while (Item *item= items++)
  {
    if (item->type() != Item::SUM_FUNC_ITEM)
      return false;
    const Item_sum *sum= static_cast<const Item_sum *>(item);
    if (sum->sum_func() != Item_sum::COUNT_FUNC || sum->get_arg(0)->maybe_null())
      return false;
  }
  return true;
}

/* The engine has read the rows, by their primary key, if there is one: user statistics count them, as if the server had
   read them. Those of a partitioned table are kept by the handler of all partitions. */
static void note_rows_read(const TABLE *table, ha_rows rows)
{
  table->file->rows_read+= rows;
  if (table->s->primary_key < MAX_KEY)
    table->file->index_rows_read[table->s->primary_key]+= rows;
}

/* The number of rows that the statement sees; HA_POS_ERROR: the server is to read them. It does so as well after an
   error, and meets the error again. Outside the optimization of a query the server wants the estimate, from which an
   ALTER TABLE that copies computes its progress. */
ha_rows ha_evenkeel::records()
{
  const TABLE_LIST *list= table->pos_in_table_list;
  if (!list || !list->select_lex || !list->select_lex->join)
    return handler::records();
  const bool is_plain= m_lock == EK_LOCK_NONE && !m_is_copied;
  if (!is_plain || table_share->table_type == TABLE_TYPE_SEQUENCE || !wants_only_counts(ha_thd(), table))
    return HA_POS_ERROR;
  Measured measured(handler_stats);
  ek_error error;
  ek_txn *txn= transaction(&error);
  const int64_t rows= txn ? ek_count(txn, name(), &error) : -1;
  if (rows < 0)
    return HA_POS_ERROR;
  note_rows_read(table, (ha_rows) rows);
  return (ha_rows) rows;
}
