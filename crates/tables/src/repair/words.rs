//! Clustered keys and reasons in words.

use crate::table_layout::Layout;
use evenkeel_base::Error;
use evenkeel_format::text;

/// The context of an error that says where and what.
const WHERE: [&str; 5] = ["column", "page", "file", "offset", "why"];

/// What is damaged and where, without a next step: the repair is that step.
pub(super) fn reason(error: &Error) -> String {
    let place = WHERE.iter().filter_map(|name| Some(format!("{name}={}", error.context(name)?)));
    let place: Vec<String> = place.collect();
    match place.is_empty() {
        true => error.code().text().to_string(),
        false => format!("{} ({})", error.code().text(), place.join(", ")),
    }
}

/// A bound of a range of keys, which need not be the key of a row.
pub(super) fn bound(layout: &Layout, key: &[u8]) -> String {
    let parts = layout.key.iter().map(|of| (&of.part, &*layout.columns[of.column].name));
    format!("({})", text::key(parts, key))
}
