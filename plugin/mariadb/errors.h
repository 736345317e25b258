/* Errors of the engine as the server and its clients are told them. */
#ifndef EVENKEEL_ERRORS_H
#define EVENKEEL_ERRORS_H
#include "server.h"

enum Code
{
#define ANSWER(code, handler, client, number, text) CODE_##code,
#include "errors.def"
#undef ANSWER
  CODES
};

/* An error of the plugin itself, as one of the engine. */
void make_error(ek_error *error, Code code, ek_kind kind, const char *format, ...)
  ATTRIBUTE_FORMAT(printf, 4, 5);

/* The client's number of an error. */
uint client_number(const ek_error &error);

/* The statement fails with an error: the server's number of it. The server knows which transactions are to
   be rolled back then, and will ask a table to print the error. */
int handler_error(THD *thd, const ek_error &error);
/* The same where the server gives the error a number of its own. */
int handler_error_as(THD *thd, const ek_error &error, int number);
/* The same where no table is asked: the error is the client's at once. */
int raise_error(THD *thd, const ek_error &error);
/* The statement goes on without what has failed: a warning, and if something is damaged a line in the log. */
void warn_of_error(THD *thd, const ek_error &error);

/* Prints what the thread's statement failed with, if that was this error; `share` is its table. False: the
   server's own text is to be printed. */
bool print_failure(THD *thd, const TABLE_SHARE *share, int error, myf flags);
#endif
