//! Compares `plugin/mariadb/capi.h` with this crate: the same functions with the same number of
//! parameters, and structures with the size and layout that a C compiler gives them.

use evenkeel_capi::alter::{
    EkBuildFigures, EkChange, EkNewColumn, EkNewIndexes, EkRename, EkWiden,
};
use evenkeel_capi::backup::{EkBackupFigures, EkBackupReport};
use evenkeel_capi::chunks::{EkChunk, EkChunking};
use evenkeel_capi::collations::EkCollations;
use evenkeel_capi::database::{EkColumn, EkIndex, EkOptions, EkPart, EkSchemaWait};
use evenkeel_capi::inspect::{EkCosts, EkTableInfo};
use evenkeel_capi::transaction::EkBound;
use evenkeel_capi::{EkBytes, EkError, EkValue, database, table, transaction};
use std::collections::BTreeMap;
use std::fs;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Name and number of parameters of each function that `begin` introduces.
fn functions(text: &str, begin: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for (at, _) in text.match_indices(begin) {
        let Some((name, rest)) = text[at + begin.len()..].split_once('(') else { continue };
        if !name.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
            continue;
        }
        // Parameters that are function pointers contain brackets.
        let (mut depth, mut count, mut any) = (1, 1, false);
        for c in rest.chars() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                ',' if depth == 1 => count += 1,
                c if !c.is_whitespace() => any = true,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        let inside = rest.trim_start();
        let none = !any || inside.starts_with("void)") || inside.starts_with(')');
        found.insert(format!("ek_{name}"), if none { 0 } else { count });
    }
    found
}

#[test]
fn the_header_declares_every_function() {
    let header = fs::read_to_string(root().join("plugin/mariadb/capi.h")).expect("is there");
    let header = header.replace("*ek_", " ek_").replace(" ek_", "\u{1}");
    let declared = functions(&header, "\u{1}");
    let mut defined = BTreeMap::new();
    for file in fs::read_dir(root().join("crates/capi/src")).expect("is there") {
        let text = fs::read_to_string(file.expect("is there").path()).expect("is there");
        // A trailing comma ends a list over several lines.
        let text = text.replace(",\n)", "\n)");
        defined.extend(functions(&text, "extern \"C\" fn ek_"));
    }
    assert!(defined.len() > 30);
    for (name, parameters) in &defined {
        assert_eq!(declared.get(name), Some(parameters), "{name} in capi.h");
    }
}

/// The plugin has an answer for every code, in the order of the numbers of `EkError::code`.
#[test]
fn the_plugin_has_an_answer_for_every_error_code() {
    let answers = fs::read_to_string(root().join("plugin/mariadb/errors.def")).expect("is there");
    let named = |line: &str| Some(line.strip_prefix("ANSWER(")?.split_once(',')?.0.to_string());
    let answered: Vec<String> = answers.lines().filter_map(named).collect();
    let codes: Vec<&str> = evenkeel::Code::ALL.iter().map(|code| code.name()).collect();
    assert_eq!(answered, codes);
    for (place, code) in evenkeel::Code::ALL.iter().enumerate() {
        assert_eq!(*code as usize, place, "{}", code.name());
    }
}

/// Each handler function that the server calls catches exceptions, unless it is a single line of
/// the header.
#[test]
fn every_handler_function_catches_exceptions() {
    let read = |name: &str| {
        fs::read_to_string(root().join("plugin/mariadb").join(name)).expect("is there")
    };
    // The cost functions only read what `info` has stored.
    let plain = ["keys_to_use_for_scanning"];
    let (table, guarded) = (read("ha_evenkeel.h"), read("guarded.h"));
    let mut count = 0;
    for (at, _) in table.match_indices(" override;") {
        let declared = &table[..at];
        let declared = &declared[declared.rfind([';', '}']).expect("something is before")..];
        let open = declared.find('(').expect("a function");
        let name = declared[..open].rsplit([' ', '*']).next().unwrap_or("");
        if name.starts_with('~') || plain.contains(&name) {
            continue;
        }
        let is_there = [format!("{name},"), format!("{name}(")];
        assert!(is_there.iter().any(|begin| guarded.contains(begin)), "{name} is not in guarded.h");
        count += 1;
    }
    assert!(count > 50, "{count} functions found");
}

/// Each function that the plugin gives the server beside a table's is wrapped: no exception leaves
/// it.
#[test]
fn every_function_of_the_plugin_catches_exceptions() {
    let read = |name: &str| {
        fs::read_to_string(root().join("plugin/mariadb").join(name)).expect("is there")
    };
    let data =
        ["flags", "savepoint_offset", "tablefile_extensions", "table_options", "field_options"];
    let engine = read("engine.cc");
    let mut count = 0;
    for line in engine.lines() {
        let named = line.trim().strip_prefix("h->");
        let Some((name, given)) = named.and_then(|text| text.split_once("= ")) else { continue };
        if !data.contains(&name) {
            assert!(given.starts_with("entry<"), "h->{name} is {given}");
            count += 1;
        }
    }
    assert!(count > 20, "{count} functions found");
    for function in ["evenkeel_init, 1>", "evenkeel_deinit>", "init, 1>"] {
        assert!(engine.contains(&format!("entry<{function}")), "{function}");
    }
    assert!(read("schema_tables.cc").contains("fill_table= entry<"));
    assert!(read("status.cc").contains("+entry<show_figures"));
    let settings = read("settings.cc");
    let functions: Vec<&str> = settings
        .split("static void ")
        .filter_map(|text| Some(text.split_once("(THD *thd, st_mysql_sys_var *")?.0))
        .collect();
    assert!(functions.len() > 3, "{functions:?}");
    for function in functions {
        assert!(settings.contains(&format!("entry<{function}>")), "{function}");
        let uses = settings.matches(function).count();
        assert_eq!(uses, 2, "{function} is used without its guard");
    }
}

/// Each function catches panics, so a panic does not end the program.
#[test]
fn every_c_function_catches_panics() {
    let mut count = 0;
    for file in fs::read_dir(root().join("crates/capi/src")).expect("is there") {
        let text = fs::read_to_string(file.expect("is there").path()).expect("is there");
        for (at, begin) in text.match_indices("extern \"C\" fn ek_") {
            let rest = &text[at + begin.len()..];
            let end = rest.find("\n}").expect("a function ends");
            let fenced = rest[..end].contains("fence(") || rest[..end].contains("catch(");
            assert!(fenced, "ek_{} has no fence", rest.split('(').next().unwrap_or(""));
            count += 1;
        }
    }
    assert!(count > 60, "{count} functions found");
}

/// A change without columns, as C passes it, is valid.
#[test]
fn a_change_of_no_columns_changes_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    let text = |text: &str| EkBytes::of(text.as_bytes());
    // SAFETY: handles are used as their functions require; null is allowed where it is passed.
    unsafe {
        let mut error: EkError = std::mem::zeroed();
        let error = &raw mut error;
        let db = database::ek_open(text(path.to_str().expect("a name")), null(), error);
        assert!(!db.is_null(), "{:?}", (*error).kind);
        let column = EkColumn { name: text("id"), type_code: 5, flags: 0, a: 0, b: 0 };
        let part = EkPart { column: 0, collation: 0, prefix: 0, desc: 0 };
        let made = database::ek_create_table(
            db,
            text("t"),
            &raw const column,
            1,
            &raw const part,
            1,
            null(),
            0,
            null(),
            0,
            null(),
            0,
            error,
        );
        assert_eq!(made, 0, "{:?}", (*error).kind);
        let txn = transaction::ek_begin(db, transaction::EK_REPEATABLE_READ, 1000, error);
        let row = EkValue { kind: 1, bits: 7, bytes: EkBytes::NONE };
        let table = table::ek_table_new(text("t"));
        assert_eq!(transaction::ek_insert(txn, table, &raw const row, 1, error), 0);
        let key = transaction::ek_last_key(txn);
        let key = key.get().to_vec();
        let key = EkBytes::of(&key);
        let changed = transaction::ek_update(txn, table, key, null(), null(), null(), 0, error);
        assert_eq!(changed, 1);
        table::ek_table_free(table);
        let mut commit = 0;
        assert_eq!(transaction::ek_commit(txn, &raw mut commit, error), 0);
        assert_eq!(database::ek_close(db, error), 0);
    }
}

#[test]
fn structures_have_the_layout_that_c_gives_them() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = r#"
#include <stdio.h>
#include "capi.h"
int main(void)
{
  printf("%zu %zu %zu %zu %zu %zu %zu %zu %zu\n", sizeof(ek_bytes),
         sizeof(ek_value), sizeof(ek_error),
         sizeof(ek_options), sizeof(ek_column), sizeof(ek_part), sizeof(ek_index),
         sizeof(ek_bound), sizeof(ek_collations));
  printf("%zu %zu %zu %zu %zu %zu %zu %zu %zu %zu\n", offsetof(ek_value, bytes),
         offsetof(ek_error, code), offsetof(ek_error, text),
         offsetof(ek_column, a), offsetof(ek_index, unique), offsetof(ek_bound, len),
         offsetof(ek_options, durability), offsetof(ek_options, collations),
         offsetof(ek_part, prefix), offsetof(ek_part, desc));
  printf("%zu %zu %zu %zu %zu %zu\n", sizeof(ek_change), sizeof(ek_new_column),
         sizeof(ek_rename), sizeof(ek_widen), sizeof(ek_table_info), sizeof(ek_new_indexes));
  printf("%zu %zu %zu\n", sizeof(ek_build_figures), offsetof(ek_build_figures, done_ppm),
         offsetof(ek_build_figures, left_s));
  printf("%zu %zu %zu %zu\n", offsetof(ek_change, add_columns_len),
         offsetof(ek_new_column, value), offsetof(ek_table_info, mark),
         offsetof(ek_table_info, index_bytes));
  printf("%zu %zu\n", sizeof(ek_costs), offsetof(ek_costs, read_ns));
  printf("%zu %zu %zu\n", sizeof(ek_schema_wait), offsetof(ek_schema_wait, lock_wait_ms),
         offsetof(ek_schema_wait, context));
  printf("%zu %zu %zu\n", sizeof(ek_backup_figures), offsetof(ek_backup_figures, bytes_expected),
         sizeof(ek_backup_report));
  printf("%zu %zu %zu %zu\n", sizeof(ek_chunking), offsetof(ek_chunking, unit), sizeof(ek_chunk),
         offsetof(ek_chunk, slot));
  return 0;
}
"#;
    fs::write(dir.path().join("layout.c"), program).expect("writable");
    let binary = dir.path().join("layout");
    let done = Command::new("gcc")
        .arg("-I")
        .arg(root().join("plugin/mariadb"))
        .arg(dir.path().join("layout.c"))
        .arg("-o")
        .arg(&binary)
        .status();
    assert!(done.expect("`make deps` installs gcc").success());
    let output = Command::new(&binary).output().expect("runs");
    let sizes = [
        size_of::<EkBytes>(),
        size_of::<EkValue>(),
        size_of::<EkError>(),
        size_of::<EkOptions>(),
        size_of::<EkColumn>(),
        size_of::<EkPart>(),
        size_of::<EkIndex>(),
        size_of::<EkBound>(),
        size_of::<EkCollations>(),
    ];
    let offsets = [
        offset_of!(EkValue, bytes),
        offset_of!(EkError, code),
        offset_of!(EkError, text),
        offset_of!(EkColumn, a),
        offset_of!(EkIndex, unique),
        offset_of!(EkBound, len),
        offset_of!(EkOptions, durability),
        offset_of!(EkOptions, collations),
        offset_of!(EkPart, prefix),
        offset_of!(EkPart, desc),
    ];
    let change_sizes = [
        size_of::<EkChange>(),
        size_of::<EkNewColumn>(),
        size_of::<EkRename>(),
        size_of::<EkWiden>(),
        size_of::<EkTableInfo>(),
        size_of::<EkNewIndexes>(),
    ];
    let change_offsets = [
        offset_of!(EkChange, add_columns_len),
        offset_of!(EkNewColumn, value),
        offset_of!(EkTableInfo, mark),
        offset_of!(EkTableInfo, index_bytes),
    ];
    let figures = [
        size_of::<EkBuildFigures>(),
        offset_of!(EkBuildFigures, done_ppm),
        offset_of!(EkBuildFigures, left_s),
    ];
    let line = |n: &[usize]| n.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
    let costs = [size_of::<EkCosts>(), offset_of!(EkCosts, read_ns)];
    let waits = [
        size_of::<EkSchemaWait>(),
        offset_of!(EkSchemaWait, lock_wait_ms),
        offset_of!(EkSchemaWait, context),
    ];
    let backups = [
        size_of::<EkBackupFigures>(),
        offset_of!(EkBackupFigures, bytes_expected),
        size_of::<EkBackupReport>(),
    ];
    let chunks = [
        size_of::<EkChunking>(),
        offset_of!(EkChunking, unit),
        size_of::<EkChunk>(),
        offset_of!(EkChunk, slot),
    ];
    let all: [&[usize]; 9] = [
        &sizes,
        &offsets,
        &change_sizes,
        &figures,
        &change_offsets,
        &costs,
        &waits,
        &backups,
        &chunks,
    ];
    let wanted = all.map(|numbers| line(numbers) + "\n").concat();
    assert_eq!(String::from_utf8_lossy(&output.stdout), wanted);
}
