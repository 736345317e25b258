/* Numbers of AUTO_INCREMENT columns: the engine stores the next number of each table. */
#include "ddl.h"
#include "fault_injection.h"
#include "ha_evenkeel.h"

/* The first number above `number` in the series offset, offset + increment, ...; 0 if there is none. */
static ulonglong next_in_series(ulonglong number, ulonglong offset, ulonglong increment)
{
  if (increment <= 1)
    return number + 1;
  /* As in InnoDB: an offset above the increment is ignored. */
  if (offset > increment)
    offset= 0;
  if (number < offset)
    return offset;
  const ulonglong next= ((number - offset) / increment + 1) * increment + offset;
  return next > number ? next : 0;
}

/* The number that the server derives from the next free one; ULONGLONG_MAX if there is none. */
static ulonglong made_of(ulonglong free, ulonglong offset, ulonglong increment)
{
  if (increment <= 1)
    return free;
  const ulonglong made= (free - 1 + increment - offset) / increment * increment + offset;
  return made >= free ? made : ULONGLONG_MAX;
}

/* Where the numbers continue after `wanted` of them; ULONGLONG_MAX if none are left. As in InnoDB, they begin at the next
   free number if the first of the series is above `greatest`. */
static ulonglong end_of(ulonglong free, ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong greatest)
{
  const ulonglong made= made_of(free, offset, increment);
  const ulonglong next= next_in_series(made < greatest ? made : free, offset, increment);
  ulonglong end, more;
  if (!next || __builtin_mul_overflow(MY_MAX(wanted, 1) - 1, MY_MAX(increment, 1), &more) ||
      __builtin_add_overflow(next, more, &end))
    return ULONGLONG_MAX;
  return end;
}

void ha_evenkeel::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted,
                                     ulonglong *first, ulonglong *given)
{
  *first= ULONGLONG_MAX;
  *given= 0;
  const ulonglong greatest= table->next_number_field->get_max_int_value();
  /* A copying statement has the table alone. The server reserves its estimate of the rows, history rows included,
     which get no number; unused numbers would leave a gap after the last row. */
  if (copies_table(ha_thd()))
    wanted= 1;
  /* As in InnoDB, a statement that brings some numbers itself reserves no more than for the rest of its rows. */
  if (m_numbers.rows_left)
    wanted= m_numbers.rows_left;
  for (;;)
  {
    const ulonglong next= ek_next_number(evenkeel_db, name());
    ulonglong free= next;
    /* The series of a smaller increment begins right after the last number: the numbers that the greater increment
       skipped belong to nobody, if this handle was the last to reserve numbers. */
    if (increment > 1 && increment < m_numbers.increment && next == m_numbers.end)
      free= MY_MIN(next, MY_MAX(next_in_series(m_numbers.last, offset, increment), 1));
    if (free > greatest || free == ULONGLONG_MAX)
    {
      /* The column has no number left; the server raises the error when it stores this one. */
      *first= free;
      *given= 1;
      return;
    }
    const ulonglong end= end_of(free, offset, increment, wanted, greatest);
    ek_error error;
    const int moved= ek_move_numbers(evenkeel_db, name(), next, end, &error);
    if (moved < 0)
    {
      /* The server's own error for this; its text names no cause. */
      handler_error_as(ha_thd(), error, HA_ERR_AUTOINC_READ_FAILED);
      return;
    }
    if (!moved)
      continue;
    *first= free;
    *given= MY_MAX(wanted, 1);
    m_numbers.rows_left= *given;
    m_numbers.end= end;
    m_numbers.offset= offset;
    m_numbers.increment= increment;
    return;
  }
}

/* The number in a record's AUTO_INCREMENT column; 0 if no number follows it. The value of a DOUBLE is read without
   the field, which would raise an error in strict mode if it does not fit an integer. As in InnoDB, values beyond
   the range that the type represents exactly do not move the next number. */
static ulonglong number_in(Field *field)
{
  const ulonglong greatest= field->get_max_int_value();
  if (field->cmp_type() == REAL_RESULT && !plant("DoubleAsInteger"))
  {
    const double n= rint(field->val_real());
    return n > 0 && n <= (double) greatest ? (ulonglong) n : 0;
  }
  const longlong n= field->val_int();
  return n < 0 && !(field->flags & UNSIGNED_FLAG) ? 0 : (ulonglong) n;
}

/* The next numbers are above the one in the record. As in InnoDB, they continue in the series of this handle's last
   reserved numbers, and behind any number in a handle that has reserved none: a replica that applies rows keeps off
   the series of their source, whose next numbers may belong to a third server. */
int ha_evenkeel::pass_number()
{
  const ulonglong n= number_in(table->found_next_number_field);
  if (!n)
    return 0;
  const ulonglong next= next_in_series(n, m_numbers.offset, m_numbers.increment);
  ek_error error;
  return ek_pass_number(evenkeel_db, name(), (next ? next : ULONGLONG_MAX) - 1, &error) ? fail(error)
                                                                                         : 0;
}

/* A row was written with a number. */
int ha_evenkeel::number_written()
{
  m_numbers.last= MY_MAX(m_numbers.last, number_in(table->found_next_number_field));
  return pass_number();
}

/* A new row was refused as a duplicate. As in InnoDB, its number is passed if the statement may go on behind it. */
int ha_evenkeel::number_refused()
{
  const LEX *lex= ha_thd()->lex;
  switch (thd_sql_command(ha_thd())) {
  case SQLCOM_LOAD:
    return lex->duplicates == DUP_ERROR ? 0 : pass_number();
  case SQLCOM_REPLACE:
  case SQLCOM_REPLACE_SELECT:
  case SQLCOM_INSERT_SELECT:
    return pass_number();
  default:
    return 0;
  }
}

int ha_evenkeel::reset_auto_increment(ulonglong value)
{
  ek_error error;
  return ek_restart_numbers(evenkeel_db, name(), MY_MAX(value, 1), &error) ? fail(error) : 0;
}

void ha_evenkeel::update_create_info(HA_CREATE_INFO *info)
{
  /* Without an AUTO_INCREMENT column there is no number to show. A column that an ALTER adds begins at 1, unless the
     ALTER says otherwise. */
  const bool counts= table->found_next_number_field || plant("NumberWithoutColumn");
  if (!(info->used_fields & HA_CREATE_USED_AUTO))
    info->auto_increment_value= counts ? ek_next_number(evenkeel_db, name()) : 0;
}

/* The numbers of a new table begin where its definition, or the table that it replaces, says. */
int ha_evenkeel::begin_numbers(const std::string &made, const HA_CREATE_INFO *info)
{
  const int command= thd_sql_command(ha_thd());
  const bool replaces= command == SQLCOM_ALTER_TABLE || command == SQLCOM_OPTIMIZE ||
                       command == SQLCOM_CREATE_INDEX || command == SQLCOM_DROP_INDEX;
  if (info->auto_increment_value <= 1 || !(replaces || info->used_fields & HA_CREATE_USED_AUTO))
    return 0;
  ek_error error;
  if (ek_restart_numbers(evenkeel_db, ek_text(made), info->auto_increment_value, &error))
    return raise_error(ha_thd(), error);
  return 0;
}
