/* Faults that tests plant in the plugin. */
#include "fault.h"
#ifdef EVENKEEL_PLANTED
#include <new>

ulonglong fault_new;
int fault_code= -1;
uint fault_pause_ms;

bool fault_of_change(ek_error *error)
{
  if (fault_code < 0)
    return false;
  ek_error_of_code(fault_code, error);
  return true;
}

/* The plugin's own operator new, whose symbol no other library sees. Templates of the standard library are compiled
   into the plugin (build.sh), so allocations of strings count, too. */
void *operator new(size_t bytes)
{
  ulonglong left= __atomic_load_n(&fault_new, __ATOMIC_RELAXED);
  while (left && !__atomic_compare_exchange_n(&fault_new, &left, left - 1, false, __ATOMIC_RELAXED,
                                              __ATOMIC_RELAXED)) {}
  void *place= left == 1 ? nullptr : malloc(bytes ? bytes : 1);
  if (!place)
    throw std::bad_alloc();
  return place;
}

void *operator new[](size_t bytes) { return operator new(bytes); }
void operator delete(void *place) noexcept { free(place); }
void operator delete(void *place, size_t) noexcept { free(place); }
void operator delete[](void *place) noexcept { free(place); }
void operator delete[](void *place, size_t) noexcept { free(place); }
#endif
