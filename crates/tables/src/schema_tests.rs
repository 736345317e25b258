//! Definitions: every limit at the limit and one beyond, every wrong definition by its own code.

use super::*;

fn define(spec: &TableSpec, page_size: usize) -> Result<TableDef> {
    let mut next = 0;
    let next_index = || {
        next += 1;
        IndexId(next)
    };
    TableDef::new(TableId(7), "t", spec, next_index, page_size)
}

fn code(spec: &TableSpec) -> Option<Code> {
    define(spec, 4096).err().map(|e| e.code())
}

fn columns(n: usize) -> TableSpec {
    let column = |i| ColumnSpec::new(&format!("c{i}"), ColumnType::Int32);
    TableSpec { columns: (0..n).map(column).collect(), ..TableSpec::default() }
}

#[test]
fn limits_hold_at_the_limit_and_one_beyond() {
    assert_eq!(code(&columns(limits::COLUMNS_MAX)), None);
    assert_eq!(code(&columns(limits::COLUMNS_MAX + 1)), Some(Code::TooManyColumns));
    let with_indexes = |n| {
        let mut spec = columns(2);
        spec.indexes = (0..n).map(|i| IndexSpec::new(&format!("i{i}"), &["c1"])).collect();
        spec
    };
    assert_eq!(code(&with_indexes(limits::INDEXES_MAX)), None);
    assert_eq!(code(&with_indexes(limits::INDEXES_MAX + 1)), Some(Code::TooManyIndexes));
    // An ALTER has its new columns and the ones that they replace at the same time.
    let mut spec = with_indexes(limits::INDEXES_MAX);
    let provisional = |i| IndexSpec::new(&format!("{}n{i}", crate::PROVISIONAL), &["c1"]);
    spec.indexes.extend((0..limits::INDEXES_MAX).map(provisional));
    assert_eq!(code(&spec), None);
    spec.indexes.push(provisional(limits::INDEXES_MAX));
    assert_eq!(code(&spec), Some(Code::TooManyIndexes));
    let with_parts = |n: usize| {
        let names: Vec<String> = (0..n).map(|i| format!("c{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        columns(n).index(IndexSpec::new("i", &names))
    };
    assert_eq!(code(&with_parts(limits::KEY_PARTS_MAX)), None);
    assert_eq!(code(&with_parts(limits::KEY_PARTS_MAX + 1)), Some(Code::TooManyKeyParts));
    let name =
        |n: usize| TableSpec::new().column(ColumnSpec::new(&"x".repeat(n), ColumnType::Bool));
    assert_eq!(code(&name(limits::NAME_BYTES_MAX)), None);
    assert_eq!(code(&name(limits::NAME_BYTES_MAX + 1)), Some(Code::NameInvalid));
    let table = |name: String| {
        let made = TableDef::new(TableId(20), &name, &columns(1), || IndexId(1), 4096);
        made.err().map(|e| e.code())
    };
    assert_eq!(table("t".repeat(limits::TABLE_NAME_BYTES_MAX)), None);
    assert_eq!(table("t".repeat(limits::TABLE_NAME_BYTES_MAX + 1)), Some(Code::NameInvalid));
    let index = |name: &str| code(&columns(1).index(IndexSpec::new(name, &["c0"])));
    for before in [String::new(), crate::PROVISIONAL.to_string()] {
        let named = |n: usize| index(&format!("{before}{}", "i".repeat(n)));
        assert_eq!(named(limits::NAME_BYTES_MAX), None, "{before:?}");
        assert_eq!(named(limits::NAME_BYTES_MAX + 1), Some(Code::NameInvalid), "{before:?}");
    }
    assert_eq!((index("two\nlines\tand a tab"), index("nu\0l")), (None, Some(Code::NameInvalid)));
    let default = |n: usize| {
        let text = ColumnSpec::new("c", ColumnType::Text { max: 9999 });
        TableSpec::new().column(text.default_value("x".repeat(n)))
    };
    assert_eq!(code(&default(limits::DEFAULT_BYTES_MAX)), None);
    assert_eq!(code(&default(limits::DEFAULT_BYTES_MAX + 1)), Some(Code::DefinitionInvalid));
    let typed = |ty| TableSpec::new().column(ColumnSpec::new("c", ty));
    let decimal = |precision| typed(ColumnType::Decimal { precision, scale: 0 });
    assert_eq!(code(&decimal(limits::DECIMAL_DIGITS_MAX)), None);
    assert_eq!(code(&decimal(limits::DECIMAL_DIGITS_MAX + 1)), Some(Code::DefinitionInvalid));
    let fixed = |len| typed(ColumnType::FixedBytes { len });
    assert_eq!(code(&fixed(limits::FIXED_BYTES_MAX)), None);
    assert_eq!(code(&fixed(limits::FIXED_BYTES_MAX + 1)), Some(Code::DefinitionInvalid));
}

#[test]
fn a_table_changed_often_reaches_its_limits() {
    let mut def = define(&columns(1), 4096).expect("defines");
    let spec = |i: usize| ColumnSpec::new(&format!("later{i}"), ColumnType::Int32).nullable();
    for i in 1..limits::COLUMNS_EVER_MAX {
        def.push_column(&spec(i)).expect("at the limit");
        def.columns[i].entry.dropped_in = 1;
    }
    assert_eq!(def.columns.len(), limits::COLUMNS_EVER_MAX);
    let beyond = def.push_column(&spec(limits::COLUMNS_EVER_MAX + 1)).expect_err("one beyond");
    assert_eq!(beyond.code(), Code::TooManyColumns);
    assert_eq!(beyond.context("in"), Some("columns ever"));
    def.entry.row_version = limits::ROW_VERSIONS_MAX - 1;
    def.raise_format().expect("at the limit");
    let beyond = def.raise_format().expect_err("limits::ROW_VERSIONS_MAX + 1");
    assert_eq!((beyond.code(), beyond.context("in")), (Code::TooManyColumns, Some("row formats")));
}

#[test]
fn a_possibly_too_long_primary_key_becomes_a_unique_index() {
    let spec = |max| {
        TableSpec::new().column(ColumnSpec::new("k", ColumnType::Bytes { max })).primary_key(&["k"])
    };
    // 2 * 408 + 2 = 818 <= 4096 / 5 = 819.
    let short = define(&spec(408), 4096).expect("defines");
    assert!(!short.entry.hidden_key && short.indexes.is_empty());
    let long = define(&spec(409), 4096).expect("defines");
    assert!(long.entry.hidden_key);
    assert!(long.indexes[0].entry.unique && long.indexes[0].entry.primary);
    assert!(!define(&spec(409), 8192).expect("defines").entry.hidden_key);
}

#[test]
fn wrong_definitions_are_named() {
    let column = |name| ColumnSpec::new(name, ColumnType::Int32);
    let cases = [
        (TableSpec::new(), Code::DefinitionInvalid),
        (TableSpec::new().column(column("a")).column(column("a")), Code::ColumnExists),
        (TableSpec::new().column(column("")), Code::NameInvalid),
        (TableSpec::new().column(column("a")).primary_key(&["b"]), Code::ColumnMissing),
        (
            TableSpec::new().column(column("a").nullable()).primary_key(&["a"]),
            Code::DefinitionInvalid,
        ),
        (columns(2).primary_key(&["c0", "c0 desc"]), Code::DefinitionInvalid),
        (columns(2).index(IndexSpec::new("i", &[])), Code::DefinitionInvalid),
        (columns(2).index(IndexSpec::new("primary", &["c0"])), Code::IndexExists),
        (TableSpec::new().column(column("a").default_value("x")), Code::ValueType),
        (TableSpec::new().column(column("a").default_value(1i64 << 31)), Code::ValueRange),
        (
            TableSpec::new().column(ColumnSpec::new("a", ColumnType::Date).auto_increment()),
            Code::DefinitionInvalid,
        ),
        (
            TableSpec::new()
                .column(column("a").auto_increment())
                .column(column("b").auto_increment()),
            Code::DefinitionInvalid,
        ),
        (
            TableSpec::new()
                .column(ColumnSpec::new("a", ColumnType::Decimal { precision: 39, scale: 0 })),
            Code::DefinitionInvalid,
        ),
    ];
    for (spec, want) in cases {
        assert_eq!(code(&spec), Some(want), "{spec:?}");
    }
}
