//! The insert benchmark and its report.
