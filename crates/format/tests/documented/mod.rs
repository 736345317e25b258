//! Reads the tables of `docs/format`, for the tests that compare them with the code.

use std::path::Path;

/// The rows of the table behind a marker, cell by cell.
pub fn table(page: &str, marker: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format").join(page);
    let text = std::fs::read_to_string(path).expect("the page is there");
    let marker = format!("<!-- {marker} -->");
    let (_, behind) = text.split_once(&marker).unwrap_or_else(|| panic!("{page}: no {marker}"));
    let lines = behind.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    let cells = |line: &str| line.trim_matches('|').split('|').map(|c| c.trim().into()).collect();
    rows.map(cells).collect()
}

/// The name in backticks that a cell begins with.
pub fn name(cell: &str) -> &str {
    cell.split('`').nth(1).unwrap_or_else(|| panic!("no name in backticks: {cell}"))
}
