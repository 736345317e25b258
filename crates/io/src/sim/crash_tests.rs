//! Crash policies.
