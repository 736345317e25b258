/* The plugin's border: what the server calls, and what the engine calls back. No exception crosses it: the
   server's own code has none, and the engine's frames, which are Rust's, must not be unwound by one. */
#ifndef EVENKEEL_ENTRY_H
#define EVENKEEL_ENTRY_H
#include "engine.h"
#include <type_traits>
#include <utility>

/* In a handler of exceptions: the handler's number of the present one. The log is told what it was, and with
   `at_once` the client too: else a table will be asked to print the error. */
int said_exception(bool at_once) noexcept;

/* The function of a table: what `body` gives, or the number of what is thrown in it. */
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

/* Where no number is given back: what `body` gives, or `failed`, with the error said. */
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

/* A function for the server's tables of functions that calls `function` so. */
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

/* What was thrown in a function that the engine called back: it is kept until the engine's own function has
   returned to `calling_back`. */
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

/* A function for the engine that calls `function`; after an exception it gives 1, which cancels. */
template <auto function> constexpr auto callback= &Callback_of<function>::call;

/* Calls a function of the engine that calls back. */
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
