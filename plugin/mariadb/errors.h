/* Errors of the engine as the server and its clients see them. */
#ifndef EVENKEEL_ERRORS_H
#define EVENKEEL_ERRORS_H
#include "server.h"
#include <string>

enum Code
{
#define ANSWER(code, handler, client, number, text) CODE_##code,
#include "errors.def"
#undef ANSWER
  CODES
};

/* An error of the plugin itself, in the form of an engine's error. */
void make_error(ek_error *error, Code code, ek_kind kind, const char *format, ...)
  ATTRIBUTE_FORMAT(printf, 4, 5);

/* The client's number of an error. */
uint client_number(const ek_error &error);

/* The statement fails with an error; returns the server's number of it. The server knows which of these roll the
   transaction back, and later asks a table to print the error. */
int handler_error(THD *thd, const ek_error &error);
/* As `handler_error`, where the server has a number of its own for the error. */
int handler_error_as(THD *thd, const ek_error &error, int number);
/* As `handler_error`, where the server asks no table: sends the error to the client at once. */
int raise_error(THD *thd, const ek_error &error);
/* The statement continues without the part that has failed: a warning, and a line in the log if something is
   damaged. */
void warn_of_error(THD *thd, const ek_error &error);

/* The foreign key that the thread's statement failed with, if it was `error`, and the engine's name of the table that
   has it; false if there is none. */
bool failed_key(THD *thd, int error, std::string *name, std::string *child);

/* Prints the error that the thread's statement failed with, if it was `error`; `share` is its table. False: the
   server prints its own text. */
bool print_failure(THD *thd, const TABLE_SHARE *share, int error, myf flags);
#endif
