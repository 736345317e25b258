//! Offline tools: check and stat.
