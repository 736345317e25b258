/* The plugin's border: functions that the server calls, and functions that the engine calls back. No exception
   crosses it: the server's code has none, and an exception must not unwind the engine's Rust frames. */
#ifndef EVENKEEL_ENTRY_H
#define EVENKEEL_ENTRY_H
#include "engine.h"
#include <type_traits>
#include <utility>

/* For a catch block: returns the handler's number of the present exception and writes it to the log. With `at_once`
   the client is told too; otherwise the server later asks a table to print the error. */
int said_exception(bool at_once) noexcept;

/* For a function of a handler: returns the result of `body`, or the error number of an exception in it. */
template <typename Body> inline int guarded(Body body) noexcept
{
  try
  {
    return body();
  }
  catch (...)
  {
    return said_exception(false);
  }
}

/* For a function that returns no error number: returns the result of `body`, or `failed` after an exception, which
   is reported. */
template <typename R, typename Body> inline R guarded(R failed, Body body) noexcept
{
  try
  {
    return body();
  }
  catch (...)
  {
    said_exception(true);
    return failed;
  }
}

template <typename Body> inline void guarded_all(Body body) noexcept
{
  try
  {
    body();
  }
  catch (...)
  {
    said_exception(true);
  }
}

/* Makes `function` an entry of the server's function tables, guarded in that way. */
template <auto function> struct Entry_of;

template <typename R, typename... A, R (*function)(A...)> struct Entry_of<function>
{
  template <int failed> static R call(A... given) noexcept
  {
    if constexpr (std::is_void_v<R>)
      guarded_all([&] { function(given...); });
    else
      return guarded(R(failed), [&] { return function(given...); });
  }
};

template <auto function, int failed= 0> constexpr auto entry= &Entry_of<function>::template call<failed>;

/* Keeps an exception of a callback until the engine's function has returned to `calling_back`. */
void keep_exception() noexcept;
void throw_kept();

template <auto function> struct Callback_of;

template <typename R, typename... A, R (*function)(A...)> struct Callback_of<function>
{
  static R call(A... given) noexcept
  {
    try
    {
      return function(given...);
    }
    catch (...)
    {
      keep_exception();
      if constexpr (!std::is_void_v<R>)
        return R(1);
    }
  }
};

/* A callback for the engine that calls `function`. After an exception it returns 1, which cancels. */
template <auto function> constexpr auto callback= &Callback_of<function>::call;

/* Calls a function of the engine that uses callbacks, and then throws the exception that one of them kept. */
template <typename Body> inline auto calling_back(Body body)
{
  if constexpr (std::is_void_v<decltype(body())>)
  {
    body();
    throw_kept();
  }
  else
  {
    const auto done= body();
    throw_kept();
    return done;
  }
}
#endif
