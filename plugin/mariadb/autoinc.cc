/* Numbers of AUTO_INCREMENT columns. */
#include "ha_evenkeel.h"

/* The highest number in the column, read from its index. */
ulonglong ha_evenkeel::highest_number()
{
  ek_error error;
  ulonglong highest= 0;
  ek_txn *txn= ek_begin(evenkeel_db, EK_READ_UNCOMMITTED, 0, &error);
  if (!txn)
    return 0;
  const ek_bound none= {EK_UNBOUNDED, nullptr, 0};
  const uint index= table_share->next_number_index;
  const bool descending= table->key_info[index].key_part[0].key_part_flag & HA_REVERSE_SORT;
  ek_row *row= ek_row_new();
  ek_scan_handle *scan= ek_scan(txn, name(), ek_text(index_name(index)), &none, &none,
                                descending ? 0 : EK_SCAN_BACKWARD, &error);
  ek_value value;
  const uint32_t column= (uint32_t) m_columns[table->found_next_number_field->field_index];
  if (scan && ek_scan_next(scan, row, &error) == 1 && !ek_row_value(row, column, &value, &error))
    highest= value.kind == EK_INT && (int64_t) value.bits < 0 ? 0 : value.bits;
  if (scan)
    ek_scan_free(scan);
  ek_row_free(row);
  ek_rollback(txn, &error);
  return highest;
}

void ha_evenkeel::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted,
                                     ulonglong *first, ulonglong *given)
{
  std::atomic<ulonglong> &next= shared()->next_number;
  ulonglong have= next.load();
  if (have == 0)
  {
    const ulonglong start= highest_number() + 1;
    next.compare_exchange_strong(have, start);
    have= next.load();
  }
  ulonglong from;
  do
  {
    /* The next number of the series offset, offset + increment, ... */
    from= have <= offset ? offset : offset + (have - offset + increment - 1) / increment * increment;
  } while (!next.compare_exchange_weak(have, from + wanted * increment));
  *first= from;
  *given= wanted;
}

int ha_evenkeel::reset_auto_increment(ulonglong value)
{
  shared()->next_number= value;
  return 0;
}
