/* The plugins of this library in the server's list. */
#ifndef EVENKEEL_LIBRARY_H
#define EVENKEEL_LIBRARY_H

/* Each plugin's init function calls this. INSTALL SONAME treats a plugin of the library that is uninstalled but
   still used as an installed one. It unlocks the list of plugins while another plugin's init function runs, and then
   looks the first one up without checking that it still exists. If its last user is gone by then, the server ends
   with signal 11 (10.11.18, finalize_install). This function keeps such plugins until the statement ends. */
void keep_uninstalled_plugins();
#endif
