//! To come in this order of work.
