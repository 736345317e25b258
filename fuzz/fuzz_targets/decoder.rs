//! One binary for every target: `EVENKEEL_TARGET` names it (see `evenkeel_trust::fuzz`).
#![no_main]

use evenkeel_trust::fuzz::{DATABASES, DECODERS};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static BODY: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let wanted = std::env::var("EVENKEEL_TARGET").unwrap_or_else(|_| "page".to_string());
    let mut all = DECODERS.iter().chain(DATABASES);
    all.find(|(name, _)| *name == wanted).expect("a target of this name").1
});

fuzz_target!(|data: &[u8]| BODY(data));
