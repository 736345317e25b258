/* Only in builds for tests (EVENKEEL_POISON): fills the columns of a record that were not read with nonsense. A
   server that reads one of them, or an update that writes one back, then gives a wrong answer wherever the column is
   visible, and not only where the record happens to hold the value of another row. */
#include "ha_evenkeel.h"
#ifdef EVENKEEL_POISON

static const char nonsense[]= "poison";
static const size_t nonsense_bytes= sizeof nonsense - 1;

static void poison_field(Field *field, Column::How how, uchar *record)
{
  const my_ptrdiff_t offset= record - field->table->record[0];
  uchar *ptr= field->ptr + offset;
  field->set_notnull(offset);
  const size_t len= MY_MIN(nonsense_bytes, (size_t) field->field_length);
  switch (how)
  {
  case Column::AS_VARIABLE:
  case Column::AS_BLOB:
    put_value(field, how, record, {EK_BYTES, 0, {(const uchar *) nonsense, len}}, nullptr);
    break;
  default:
    for (size_t i= 0; i < field->pack_length(); i++)
      ptr[i]= (uchar) nonsense[i % nonsense_bytes];
  }
}

/* The server computes virtual columns itself, except those from an entry. The scans of an index_merge read entries
   of several indexes into one record, and the server keeps the columns of the other scans
   (HA_EXTRA_KEYREAD_PRESERVE_FIELDS); then only parts of this key are poisoned. */
void ha_evenkeel::poison(uchar *record, const Fill &plan) const
{
  std::vector<bool> is_kept(table_share->fields, plan.is_keyread);
  const uint keys[]= {active_index, table_share->primary_key};
  for (uint index : keys)
    for (uint i= 0; index < MAX_KEY && i < table->key_info[index].user_defined_key_parts; i++)
      is_kept[table->key_info[index].key_part[i].fieldnr - 1]= false;
  for (Field **field= table->field; *field; field++)
    if (!plan.filled[(*field)->field_index] && !is_kept[(*field)->field_index] &&
        (plan.is_keyread || (*field)->stored_in_db()))
      poison_field(*field, Column::of(*field).how, record);
}
#endif
