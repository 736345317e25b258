//! Whole-engine simulator: seeded workloads, crashes, model, planted faults.
