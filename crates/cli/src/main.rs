//! The evenkeel command: bench, check, stat.
fn main() {}
