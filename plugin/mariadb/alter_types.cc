/* ALTER TABLE: the changes of a column's type after which the stored bytes stay as they are. */
#include "ha_evenkeel.h"
#include "columns.h"
#include "foreign.h"

/* Strings may grow: the bytes that are stored stay as they are. Those that a foreign key compares keep their type, as in
   InnoDB. */
bool ha_evenkeel::can_convert_nocopy(const Field &field, const Column_definition &now) const
{
  const enum_field_types type= field.real_type();
  if (type != MYSQL_TYPE_VARCHAR && type != MYSQL_TYPE_STRING)
    return false;
  if (in_foreign_key(m_name, field, &ha_thd()->lex->alter_info))
    return false;
  return now.type_handler()->real_field_type() == type && now.charset == field.charset() &&
         now.length >= field.field_length && Column::of(&field).type_code == Column::BYTES_CODE &&
         (type == MYSQL_TYPE_VARCHAR ||
          /* Values of such columns are stored with their padding spaces. */
          (field.has_charset() && !(field.charset()->state & MY_CS_NOPAD))) &&
         !now.compression_method() &&
         !field.compression_method();
}

Compare_keys ha_evenkeel::compare_key_parts(const Field &was, const Column_definition &now,
                                            const KEY_PART_INFO &before,
                                            const KEY_PART_INFO &after) const
{
  const Compare_keys plain= handler::compare_key_parts(was, now, before, after);
  if (plain != Compare_keys::NotEqual)
    return plain;
  /* A whole column that has grown gives the same key. */
  const bool whole= before.length == was.key_length() && after.length >= now.length &&
                    !(before.key_part_flag & HA_PART_KEY_SEG);
  return whole && can_convert_nocopy(was, now) ? Compare_keys::EqualButKeyPartLength
                                               : Compare_keys::NotEqual;
}
