//! Writes `docs/reference` from the tables in the code, and reports pages that differ from them.

use crate::tables::{Entry, constants, entries, number, structures};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// One generated page: its file name and the function that generates its text.
type Page = (&'static str, fn(&Path) -> String);

const PAGES: &[Page] = &[
    ("errors.md", errors),
    ("limits.md", limits),
    ("metrics.md", metrics),
    ("names.md", crate::string_names::page),
    ("settings.md", settings),
];

/// Writes every page. Returns the files that could not be written.
pub fn write(root: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, make) in PAGES {
        let path = root.join("docs/reference").join(name);
        if let Err(error) = fs::write(&path, make(root)) {
            problems.push(format!("{}: {error}", path.display()));
        }
    }
    problems
}

/// Pages that differ from their tables.
pub fn check(root: &Path) -> Vec<String> {
    let drifted = |name: &str, text: String| {
        fs::read_to_string(root.join("docs/reference").join(name)).unwrap_or_default() != text
    };
    PAGES
        .iter()
        .filter(|(name, make)| drifted(name, make(root)))
        .map(|(name, _)| format!("docs/reference/{name}: out of date, run `cargo xtask docs`"))
        .collect()
}

fn table(root: &Path, file: &str, name: &str, end: char) -> Vec<Entry> {
    entries(&fs::read_to_string(root.join(file)).unwrap_or_default(), name, end)
}

fn head(title: &str, from: &str) -> String {
    format!("# {title}\n\nGenerated from `{from}` by `cargo xtask docs`; do not edit.\n")
}

fn errors(root: &Path) -> String {
    let from = "crates/base/src/codes.rs";
    let mut page = head("Errors", from);
    page.push_str(
        "\nA message reads: what happened (name=value, ...); what to do [Name]. Programs match on\n\
         the kind. MariaDB is the number of the error that a client of the server gets.\n",
    );
    let answers = fs::read_to_string(root.join("plugin/mariadb/errors.def")).unwrap_or_default();
    sections(
        &mut page,
        &table(root, from, "codes", ';'),
        "Name | Kind | MariaDB | What happened | Next",
        |e| {
            let number = client_number(&answers, &e.name);
            format!("`{}` | {} | {number} | {}", e.name, e.values[0], e.values[1..].join(" | "))
        },
    );
    page
}

/// The number of the error that the server's clients get for a code, from the plugin's table.
fn client_number<'a>(answers: &'a str, code: &str) -> &'a str {
    let line = |line: &&str| line.starts_with(&format!("ANSWER({code},"));
    answers.lines().find(line).and_then(|line| line.split(", ").nth(3)).unwrap_or("none")
}

fn metrics(root: &Path) -> String {
    let from = "crates/base/src/metrics.rs";
    let mut page = head("Metrics", from);
    sections(&mut page, &table(root, from, "metrics", ';'), "Name | Unit | Meaning", |e| {
        let name = e.values.first().map_or("", String::as_str);
        format!("`{name}` | {}", e.values[1..].join(" | "))
    });
    page.push_str(
        "\n## Waits by cause\n\n`wait_us{cause}`, from `crates/base/src/wait_event.rs`.\n",
    );
    let causes = table(root, "crates/base/src/wait_event.rs", "causes", ',');
    rows(&mut page, &causes, "Cause | A thread waits", |e| {
        format!("`{}` | {}", e.values.join(""), e.doc)
    });
    page.push_str(PLUGIN_FIGURES);
    page
}

/// `plugin/mariadb/tests/innodb_names.py` looks each status variable of a server up in the
/// page.
pub const PLUGIN_FIGURES: &str = "
## Status variables of MariaDB

Each metric above, with `Evenkeel_` in front of its name. For each cause of waits but `idle`:
`Evenkeel_wait_{cause}_count`, `_us` (microseconds in all) and `_max_us` (the longest). In addition,
also with `Evenkeel_` in front:

| Name | Unit | Meaning |
| --- | --- | --- |
| `log_age_bytes` | bytes | Log that an open after a crash would read now (gauge) |
| `log_end` | bytes | End of the log, counted from the first byte ever written to it (gauge) |
| `log_checkpoint` | bytes | Log position where an open after a crash begins to read (gauge) |
| `page_size` | bytes | Bytes of a page |
| `memory_size` | bytes | The present value of the setting |
| `log_size` | bytes | The present value of the setting |
| `index_builds` | count | Index builds under way, without those of copies of tables (gauge) |
| `chunks_expired` | count | Chunks that `RETAIN` has dropped since the start |
| `writes_stopped` | 0 or 1 | 1 after a failed write or sync: writes are refused, reads continue |
| `backup_last` | text | The last backup: directory, then size or error; empty before |
| `backup_state` | text | The last backup: none, copying, armed, ending, complete or failed |
";

fn settings(root: &Path) -> String {
    let from = "crates/evenkeel/src/api/options.rs";
    let mut page = head("Settings", from);
    page.push_str(
        "\nFields of `Options`. *create*: fixed when the database is created; *open*: chosen at\n\
         each open; *online*: may change while open. A value outside its range is refused at open\n\
         (`OptionOutOfRange`).\n\n\
         | Name | Unit | Default | Least | Most | When | Meaning |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let text = fs::read_to_string(root.join(from)).unwrap_or_default();
    for setting in structures(&text, "pub const SETTINGS: &[Setting] = &[") {
        let field = |name: &str| {
            let found = setting.iter().find(|(n, _)| n == name);
            let value = found.map_or("", |(_, value)| value);
            number(value).unwrap_or_else(|| value.to_string())
        };
        let cells = ["unit", "default", "min", "max", "when", "doc"].map(field).join(" | ");
        let _ = writeln!(page, "| `{}` | {cells} |", field("name"));
    }
    page
}

fn limits(root: &Path) -> String {
    let from = "crates/format/src/limits.rs";
    let mut page = head("Limits", from);
    page.push_str("\nWhat goes beyond is refused with an error that names the limit.\n");
    let text = fs::read_to_string(root.join(from)).unwrap_or_default();
    rows(&mut page, &constants(&text), "Name | Limit | What", |e| {
        let value = e.values.join("");
        format!("`{}` | {} | {}", e.name, number(&value).unwrap_or(value), e.doc)
    });
    page
}

fn sections(page: &mut String, all: &[Entry], columns: &str, row: impl Fn(&Entry) -> String) {
    for group in all.chunk_by(|a, b| a.section == b.section) {
        let _ = write!(page, "\n## {}\n", group[0].section);
        rows(page, group, columns, &row);
    }
}

fn rows(page: &mut String, all: &[Entry], columns: &str, row: impl Fn(&Entry) -> String) {
    let rule = vec!["---"; columns.split('|').count()].join(" | ");
    let _ = write!(page, "\n| {columns} |\n| {rule} |\n");
    for entry in all {
        let _ = writeln!(page, "| {} |", row(entry));
    }
}
