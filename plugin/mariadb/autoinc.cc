/* Numbers of AUTO_INCREMENT columns: the engine keeps the next one of each table. */
#include "ha_evenkeel.h"

/* The number behind `number` in the series offset, offset + increment, ...; 0 if there is none. */
static ulonglong next_in_series(ulonglong number, ulonglong offset, ulonglong increment)
{
  if (increment <= 1)
    return number + 1;
  /* As InnoDB: an offset beyond the increment counts for nothing. */
  if (offset > increment)
    offset= 0;
  if (number < offset)
    return offset;
  const ulonglong next= ((number - offset) / increment + 1) * increment + offset;
  return next > number ? next : 0;
}

void ha_evenkeel::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted,
                                     ulonglong *first, ulonglong *given)
{
  *first= ULONGLONG_MAX;
  *given= 0;
  const ulonglong greatest= table->next_number_field->get_max_int_value();
  const ulonglong next= ek_next_number(evenkeel_db, name());
  if (next > greatest)
  {
    /* None is left in the column: the server says so when it stores this one. */
    *first= next;
    *given= 1;
    return;
  }
  /* An offset beyond the increment counts as none; the server makes of the number what it will. */
  if (offset > increment)
    offset= 1;
  ek_error error;
  const ulonglong value= ek_reserve_numbers(evenkeel_db, name(), offset, increment, wanted, &error);
  if (!value)
    report("auto-increment", error);
  else if (value <= greatest)
  {
    *first= value;
    *given= MY_MAX(wanted, 1);
  }
}

/* A row was written with a number: the next ones are above it. */
int ha_evenkeel::number_written()
{
  const Field *field= table->found_next_number_field;
  const longlong n= const_cast<Field *>(field)->val_int();
  if (n <= 0 && !(field->flags & UNSIGNED_FLAG))
    return 0;
  const system_variables &settings= ha_thd()->variables;
  const ulonglong next= next_in_series((ulonglong) n, settings.auto_increment_offset,
                                       settings.auto_increment_increment);
  ek_error error;
  return next && ek_pass_number(evenkeel_db, name(), next - 1, &error) ? fail(error) : 0;
}

int ha_evenkeel::reset_auto_increment(ulonglong value)
{
  ek_error error;
  return ek_restart_numbers(evenkeel_db, name(), MY_MAX(value, 1), &error) ? fail(error) : 0;
}

void ha_evenkeel::update_create_info(HA_CREATE_INFO *info)
{
  if (!(info->used_fields & HA_CREATE_USED_AUTO))
    info->auto_increment_value=
      table->found_next_number_field ? ek_next_number(evenkeel_db, name()) : 0;
}

/* A new table begins where its definition, or the table it replaces, says. */
int ha_evenkeel::begin_numbers(const std::string &made, const TABLE *form,
                               const HA_CREATE_INFO *info)
{
  const int command= thd_sql_command(ha_thd());
  const bool replaces= command == SQLCOM_ALTER_TABLE || command == SQLCOM_OPTIMIZE ||
                       command == SQLCOM_CREATE_INDEX || command == SQLCOM_DROP_INDEX;
  if (!form->found_next_number_field || info->auto_increment_value <= 1 ||
      !(replaces || info->used_fields & HA_CREATE_USED_AUTO))
    return 0;
  ek_error error;
  if (ek_restart_numbers(evenkeel_db, ek_text(made), info->auto_increment_value, &error))
    return handler_error(ha_thd(), error);
  return 0;
}
