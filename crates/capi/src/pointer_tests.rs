//! The functions of the C interface called with raw pointers, as the plugin calls them. Records and
//! buffers have exactly the named number of bytes, so the address sanitizer and Miri report each
//! access beyond them.

use crate::alter::*;
use crate::chunks::*;
use crate::database::*;
use crate::inspect::*;
use crate::record::*;
use crate::row::*;
use crate::statistics::*;
use crate::table::*;
use crate::transaction::*;
use crate::value::*;
use evenkeel::{Database, Geometry, Options};
use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

const OPEN_END: EkBound = EkBound { kind: EK_UNBOUNDED, values: null(), len: 0 };
/// The length of a value that a row buffer reads only when a plan asks for it.
const LONG: usize = (1 << 20) + 1;
const NULL: EkValue = EkValue { kind: EK_NULL, bits: 0, bytes: EkBytes::NONE };

fn text(s: &str) -> EkBytes {
    EkBytes::of(s.as_bytes())
}

/// A handle of a table, freed at the end of the statement or block.
struct Handle(*mut EkTable);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by `table`, and freed here alone.
        unsafe { ek_table_free(self.0) };
    }
}

fn table(name: &str) -> Handle {
    // SAFETY: the name lives during the call.
    Handle(unsafe { ek_table_new(text(name)) })
}

fn int(n: i64) -> EkValue {
    EkValue { kind: EK_INT, bits: n as u64, bytes: EkBytes::NONE }
}

fn bytes(b: &[u8]) -> EkValue {
    EkValue { kind: EK_BYTES, bits: 0, bytes: EkBytes::of(b) }
}

fn no_error() -> EkError {
    EkError { kind: EkKind::Ok, code: 0, index: [0; EK_NAME], text: [0; EK_TEXT] }
}

fn part(column: u16) -> EkPart {
    EkPart { column, collation: 0, prefix: 0, desc: 0 }
}

/// A database in memory with the table `t (id, name, f, body)`, an index `i (name)`.
fn open() -> *mut EkDatabase {
    let small = Geometry {
        generation_bytes: Some(64 << 10),
        pool_bytes: Some(64 * 4096),
        log_bytes: Some(4 << 20),
        undo_bytes: Some(64 << 10),
        commit_segment_ids: Some(16),
        ..Geometry::default()
    };
    let db = Database::open_with("db", Options::in_memory().geometry(small)).expect("opens");
    let db = Box::into_raw(Box::new(EkDatabase(db)));
    let column = |name, type_code, flags, a| EkColumn { name, type_code, flags, a, b: 0 };
    let columns = [
        column(text("id"), 5, 0, 0),
        column(text("name"), 14, EK_NULLABLE, 40),
        column(text("f"), 11, EK_NULLABLE, 0),
        column(text("body"), 14, EK_NULLABLE, 2 << 20),
    ];
    let (primary, parts) = ([part(0)], [part(1)]);
    let indexes = [EkIndex { name: text("i"), parts: parts.as_ptr(), parts_len: 1, unique: 0 }];
    let mut error = no_error();
    let made = |error: &mut EkError| {
        let (columns, len) = (columns.as_ptr(), columns.len());
        // SAFETY: all arguments live during the call.
        unsafe {
            ek_create_table(
                db,
                text("t"),
                columns,
                len,
                primary.as_ptr(),
                1,
                indexes.as_ptr(),
                1,
                std::ptr::null(),
                0,
                std::ptr::null(),
                0,
                error,
            )
        }
    };
    assert_eq!(made(&mut error), 0);
    assert_eq!((made(&mut error), error.kind), (-1, EkKind::Invalid), "the table is there");
    let told = CStr::from_bytes_until_nul(&error.text).expect("ends with 0");
    assert!(told.to_str().expect("UTF-8").contains('t'));
    db
}

/// Closes it and frees its handle.
fn close(db: *mut EkDatabase) {
    // SAFETY: the handle is not used again.
    assert_eq!(unsafe { ek_close(db, &mut no_error()) }, 0);
}

fn begin(db: *mut EkDatabase) -> *mut EkTxn {
    // SAFETY: the database is open.
    let txn = unsafe { ek_begin(db, EK_REPEATABLE_READ, 1000, &mut no_error()) };
    assert!(!txn.is_null());
    txn
}

fn insert(txn: *mut EkTxn, row: &[EkValue]) -> (i32, EkError) {
    let mut error = no_error();
    // SAFETY: the row lives during the call.
    (unsafe { ek_insert(txn, table("t").0, row.as_ptr(), row.len(), &mut error) }, error)
}

fn commit(txn: *mut EkTxn) {
    // SAFETY: the transaction is not used again.
    assert_eq!(unsafe { ek_commit(txn, &mut 0, &mut no_error()) }, 0);
}

/// Rows 0 to 9; even ones have a NULL for a name, number 3 a body of `long` bytes.
fn filled(long: usize) -> *mut EkDatabase {
    let db = open();
    let txn = begin(db);
    let long: Vec<u8> = (0..long).map(|i| i as u8).collect();
    for id in 0..10i64 {
        let name = id.to_string();
        let f = EkValue { kind: EK_FLOAT, bits: (id as f64).to_bits(), bytes: EkBytes::NONE };
        let name = if id % 2 == 0 { NULL } else { bytes(name.as_bytes()) };
        let body = if id == 3 { bytes(&long) } else { bytes(b"") };
        assert_eq!(insert(txn, &[int(id), name, f, body]).0, 0);
    }
    commit(txn);
    db
}

#[test]
fn rows_are_counted_as_the_transaction_sees_them() {
    let db = filled(20);
    let (reader, writer) = (begin(db), begin(db));
    let count = |txn, table| {
        let mut error = no_error();
        // SAFETY: the transactions live until they are freed below.
        (unsafe { ek_count(txn, text(table), &mut error) }, error.kind)
    };
    assert_eq!(count(reader, "t"), (10, EkKind::Ok));
    assert_eq!(insert(writer, &[int(10), NULL, NULL, NULL]).0, 0);
    assert_eq!((count(writer, "t").0, count(reader, "t").0), (11, 10));
    commit(writer);
    assert_eq!(count(reader, "t").0, 10);
    assert_eq!(count(reader, "gone"), (-1, EkKind::NotFound));
    commit(reader);
    let later = begin(db);
    assert_eq!(count(later, "t").0, 11);
    commit(later);
    close(db);
}

#[test]
#[cfg_attr(miri, ignore = "a value of a megabyte takes minutes there")]
fn a_row_buffer_keeps_what_was_read_and_a_long_value_outlives_it() {
    let db = filled(LONG);
    let txn = begin(db);
    let (row, mut error) = (ek_row_new(), no_error());
    let key = [int(3)];
    // SAFETY: handles and buffers live until they are freed below, each once.
    unsafe {
        let plan = ek_plan_new([3u32, 0, 1].as_ptr(), 3);
        let from = EkBound { kind: EK_INCLUDED, values: key.as_ptr(), len: 1 };
        let scan = ek_scan(txn, table("t").0, EkBytes::NONE, &from, &OPEN_END, 0, &mut error);
        assert_eq!(ek_scan_next(scan, row, &mut error), 1);
        ek_scan_free(scan);
        let (mut of, mut values) = (EkBytes::NONE, [NULL; 3]);
        assert_eq!(ek_row_values(row, plan, &mut of, values.as_mut_ptr(), &mut error), 0);
        assert_eq!((values[0].kind, values[1].bits), (EK_BYTES, 3));
        assert_eq!((values[2].bytes.get(), of.get().is_empty()), (&b"3"[..], false));
        let taken = ek_row_take(row, 3);
        assert!(!taken.is_null());
        ek_row_clear(row);
        let missing = [int(77)];
        assert_eq!(ek_get_at(txn, table("t").0, missing.as_ptr(), 1, row, &mut error), 0);
        let body = values[0].bytes.get();
        assert!(body.len() == LONG && body.iter().enumerate().all(|(i, b)| *b == i as u8));
        ek_long_free(taken);
        ek_plan_free(plan);
        ek_plan_free(null_mut());
        ek_row_free(row);
    }
    commit(txn);
    close(db);
}

/// Bytes of a record: id in 8, name behind a byte for its length in 1 + `room`, a byte of NULLs.
fn puts(room: u32, beneath: &[u8]) -> [EkPut; 2] {
    let plain = EkPut {
        at: 0,
        len: 8,
        null_at: 9 + room,
        null_bit: 0,
        how: EK_PUT_NUMBER,
        fill: b' ',
        len_bytes: 1,
        beneath_null: beneath.as_ptr(),
    };
    let name = EkPut { at: 8, len: 1 + room, null_bit: 2, how: EK_PUT_VARIABLE, ..plain };
    [plain, name]
}

/// Reads all rows of the index into records with `room` bytes for names. Returns the result of each
/// call and its record.
fn read_records(txn: *mut EkTxn, room: u32) -> Vec<(i32, Vec<u8>)> {
    let beneath = vec![7u8; 1 + room as usize];
    let (puts, mut error, mut found) = (puts(room, &beneath), no_error(), Vec::new());
    // SAFETY: handles and buffers live until they are freed below, each once.
    unsafe {
        let plan = ek_plan_new([0u32, 1].as_ptr(), 2);
        ek_plan_put(plan, puts.as_ptr(), 2);
        let flags = EK_SCAN_KEYS_ONLY | EK_SCAN_BACKWARD;
        let scan = ek_scan(txn, table("t").0, text("i"), &OPEN_END, &OPEN_END, flags, &mut error);
        let row = ek_row_new();
        loop {
            let mut record = vec![0u8; 10 + room as usize].into_boxed_slice();
            let mut key = EkBytes::NONE;
            let read = ek_scan_read(scan, plan, record.as_mut_ptr(), &mut key, &mut error);
            if read == 0 {
                break;
            }
            if read == 1 {
                assert_eq!(ek_scan_fetch_last(scan, row, &mut error), 1);
                let (mut of, mut values) = (EkBytes::NONE, [NULL; 2]);
                assert_eq!(ek_row_values(row, plan, &mut of, values.as_mut_ptr(), &mut error), 0);
                assert_eq!((of.get(), values[0].bits as u8), (key.get(), record[0]));
            }
            found.push((read, record.into_vec()));
            if read < 0 {
                break;
            }
        }
        ek_row_free(row);
        ek_scan_free(scan);
        ek_plan_free(plan);
    }
    found
}

#[test]
fn a_scan_writes_a_record_within_its_columns_or_fails() {
    let db = filled(0);
    let txn = begin(db);
    // From the last name down; NULLs come first in the index.
    for room in [1, 30] {
        let found = read_records(txn, room);
        let ids: Vec<u8> = found.iter().map(|(_, record)| record[0]).collect();
        assert_eq!(ids, [9, 7, 5, 3, 1, 8, 6, 4, 2, 0]);
        for (read, record) in found {
            let (name, nulls) = (&record[8..10], record[9 + room as usize]);
            let wanted = if record[0] % 2 == 0 { ([7, 7], 2) } else { ([1, b'0' + record[0]], 0) };
            assert_eq!((read, name, nulls), (1, &wanted.0[..], wanted.1));
        }
    }
    let found = read_records(txn, 0);
    assert_eq!(found.len(), 1, "the first name does not fit: an error, and no byte of it");
    assert_eq!((found[0].0, found[0].1.len()), (-1, 10));
    commit(txn);
    close(db);
}

#[test]
fn rows_change_by_key_bytes_and_by_the_row_read_last() {
    let db = filled(0);
    let txn = begin(db);
    let (row, mut error) = (ek_row_new(), no_error());
    let name = |name: &'static str| [bytes(name.as_bytes())];
    // SAFETY: handles and buffers live until they are freed below, each once.
    unsafe {
        assert_eq!(ek_savepoint(txn, text("s"), 0, &mut error), 0);
        let flags = EK_LOCK_EXCLUSIVE;
        let lower = [int(4)];
        let from = EkBound { kind: EK_INCLUDED, values: lower.as_ptr(), len: 1 };
        let scan = ek_scan_locked(
            txn,
            table("t").0,
            EkBytes::NONE,
            &from,
            &OPEN_END,
            0,
            flags,
            &mut error,
        );
        for _ in 0..2 {
            assert_eq!(ek_scan_next(scan, row, &mut error), 1);
            let plan = ek_plan_new(null(), 0);
            let (mut key, mut none) = (EkBytes::NONE, [NULL; 1]);
            assert_eq!(ek_row_values(row, plan, &mut key, none.as_mut_ptr(), &mut error), 0);
            ek_plan_free(plan);
            let new = name("new");
            let done =
                ek_update(txn, table("t").0, key, row, [1].as_ptr(), new.as_ptr(), 1, &mut error);
            assert_eq!(done, 1);
        }
        assert_eq!(ek_scan_next(scan, row, &mut error), 1);
        ek_scan_unlock(scan);
        ek_scan_free(scan);
        let (again, taken) = insert(txn, &[int(4), NULL, NULL, NULL]);
        assert_eq!((again, taken.kind), (-1, EkKind::Duplicate));
        let index = CStr::from_bytes_until_nul(&taken.index).expect("ends with 0");
        assert_eq!(index.to_bytes(), b"primary");
        let key = ek_last_key(txn).get().to_vec();
        assert_eq!(ek_delete(txn, table("t").0, EkBytes::of(&key), null(), &mut error), 1);
        assert_eq!(ek_delete(txn, table("t").0, EkBytes::of(&key), row, &mut error), 0);
        assert_eq!(ek_savepoint(txn, EkBytes::of(&[0xff]), 1, &mut error), -1);
        assert_eq!(error.kind, EkKind::Invalid, "a name that is not UTF-8");
        assert_eq!(ek_savepoint(txn, text("s"), 1, &mut error), 0);
        ek_row_free(row);
    }
    let names: Vec<_> = read_records(txn, 30).into_iter().map(|(_, record)| record[9]).collect();
    assert!(!names.contains(&b'n'), "the savepoint took the changes back");
    // SAFETY: the transaction is not used again.
    assert_eq!(unsafe { ek_rollback(txn, &mut error) }, 0);
    close(db);
}

unsafe extern "C" fn each_text(to: *mut c_void, text: EkBytes) {
    // SAFETY: `to` is the caller's list, the text is there during the call.
    unsafe { (*to.cast::<Vec<Vec<u8>>>()).push(text.get().to_vec()) }
}

unsafe extern "C" fn each_lock(
    to: *mut c_void,
    _: u64,
    table: EkBytes,
    _: EkBytes,
    _: u8,
    _: u8,
    _: u8,
    key: EkBytes,
) {
    // SAFETY: as in `each_text`.
    unsafe { (*to.cast::<Vec<Vec<u8>>>()).push([table.get(), key.get()].concat()) }
}

unsafe extern "C" fn no_end(_: *mut c_void, _: i32, _: u32) -> i32 {
    0
}

#[test]
fn callbacks_receive_prepared_transactions_locks_and_problems() {
    let db = filled(0);
    let (txn, mut error) = (begin(db), no_error());
    assert_eq!(insert(txn, &[int(100), bytes(b"prepared"), NULL, NULL]).0, 0);
    let (row, key) = (ek_row_new(), [int(1)]);
    let heard = |call: &dyn Fn(*mut c_void)| {
        let mut heard: Vec<Vec<u8>> = Vec::new();
        call((&raw mut heard).cast());
        heard
    };
    // SAFETY: handles and lists live until the calls have ended.
    unsafe {
        let locked = [EkBound { kind: EK_INCLUDED, values: key.as_ptr(), len: 1 }];
        assert_eq!(ek_lock_range(txn, table("t").0, EkBytes::NONE, locked.as_ptr(), &mut error), 0);
        let locks = heard(&|to| ek_locks(db, 10, to, each_lock));
        assert!(locks.iter().any(|lock| lock.starts_with(b"t") && lock.len() > 1), "{locks:?}");
        let canceller = ek_canceller_new();
        ek_canceller_of(canceller, txn);
        ek_cancel(canceller);
        ek_canceller_of(canceller, null());
        ek_canceller_free(canceller);
        assert_eq!(ek_prepare(txn, text("xid"), 1, &mut error), 1);
        assert_eq!(heard(&|to| ek_prepared(db, to, each_text)), [b"xid"]);
        assert_eq!(heard(&|to| ek_prepared_tables(db, text("xid"), to, each_text)), [b"t"]);
        assert!(ek_commit_prepared(db, text("xid"), &mut error) > 0);
        assert_eq!(heard(&|to| ek_tables(db, to, each_text)), [b"t"]);
        let problems = heard(&|to| {
            let found = ek_check_table(db, text("t"), to, each_text, no_end, &mut no_error());
            assert_eq!(found, 0);
        });
        assert!(problems.is_empty());
        ek_row_free(row);
    }
    close(db);
}

/// Calls with a handle use the table that has its name at that moment.
#[test]
fn a_handle_follows_its_name() {
    let db = filled(20);
    let [here, there] = [table("t"), table("u")];
    let rows = |handle: &Handle| {
        let (mut error, key, row) = (no_error(), [int(1)], ek_row_new());
        let txn = begin(db);
        // SAFETY: handles and buffers live until the end of the block.
        unsafe {
            let found = ek_get_at(txn, handle.0, key.as_ptr(), 1, row, &mut error);
            let estimate = ek_rows(db, handle.0, null_mut(), &mut no_error());
            ek_row_free(row);
            commit(txn);
            (found, estimate.signum(), error.kind)
        }
    };
    let (found, none) = ((1, 1, EkKind::Ok), (-1, -1, EkKind::NotFound));
    assert_eq!((rows(&here), rows(&there)), (found, none));
    let wait = || EkSchemaWait {
        txn: null_mut(),
        lock_wait_ms: 1000,
        cancelled: None,
        context: null_mut(),
        leaves_children: 0,
    };
    // SAFETY: the arguments live during the calls.
    unsafe {
        let mut error = no_error();
        let (t, u, none_replaced) = (text("t"), text("u"), EkBytes::NONE);
        let renamed = ek_rename_table(db, t, u, none_replaced, null(), 0, &wait(), &mut error);
        assert_eq!(renamed, 0);
        assert_eq!((rows(&here), rows(&there)), (none, found));
        assert_eq!(ek_truncate(db, text("u"), &wait(), &mut error), 0);
        assert_eq!((rows(&here), rows(&there)), (none, (0, 0, EkKind::Ok)));
        assert_eq!(ek_drop_table(db, text("u"), &wait(), &mut error), 0);
        assert_eq!((rows(&here), rows(&there)), (none, none));
    }
    drop((here, there));
    close(db);
}

/// Creates `name (at, b)`, chunked by the seconds of a day; returns the result and the error.
fn create_chunked(db: *mut EkDatabase, name: &str, unit: u8, slots: u32) -> (i32, EkError) {
    let column = |name, type_code| EkColumn { name, type_code, flags: 0, a: 0, b: 0 };
    let columns = [column(text("at"), 5), column(text("b"), 5)];
    let (time, space, primary) = (text("at"), text("b"), [part(0), part(1)]);
    let chunking = EkChunking { time, space, width_s: 86_400, retain_s: 864_000, slots, unit };
    let mut error = no_error();
    // SAFETY: all arguments live during the call.
    let made = unsafe {
        ek_create_table(
            db,
            text(name),
            columns.as_ptr(),
            2,
            primary.as_ptr(),
            2,
            null(),
            0,
            null(),
            0,
            &raw const chunking,
            0,
            &raw mut error,
        )
    };
    (made, error)
}

unsafe extern "C" fn take_chunk(to: *mut c_void, chunk: *const EkChunk) {
    // SAFETY: `to` is the vector that the test has passed, and the chunk lives during the call.
    unsafe {
        (*to.cast::<Vec<(i64, i64, u64)>>()).push(((*chunk).from, (*chunk).to, (*chunk).rows))
    };
}

unsafe extern "C" fn take_kept(to: *mut c_void, chunk: u64, txn: u64) {
    // SAFETY: `to` is the vector that the test has passed.
    unsafe { (*to.cast::<Vec<(u64, u64)>>()).push((chunk, txn)) };
}

#[test]
fn chunks_are_listed_dropped_and_kept_where_a_transaction_writes() {
    const DAY: i64 = 86_400;
    let db = open();
    assert_eq!(create_chunked(db, "c", 8, 1).1.kind, EkKind::Invalid, "no such unit");
    assert_eq!(create_chunked(db, "c", 1, 257).1.kind, EkKind::Invalid, "too many slots");
    assert_eq!(create_chunked(db, "c", 6, 1).1.kind, EkKind::Invalid, "numbers are not packed");
    assert_eq!(create_chunked(db, "c", 1, 1).0, 0);
    let first = 20_000 * DAY;
    let (txn, handle) = (begin(db), table("c"));
    let mut error = no_error();
    let put = |txn, at: i64, error: &mut EkError| {
        let row = [int(at), int(1)];
        // SAFETY: all arguments live during the call.
        assert_eq!(unsafe { ek_insert(txn, handle.0, row.as_ptr(), 2, error) }, 0);
    };
    [-1, first, first + DAY, first + 2 * DAY].iter().for_each(|at| put(txn, *at, &mut error));
    commit(txn);
    let list = || {
        let mut all: Vec<(i64, i64, u64)> = Vec::new();
        // SAFETY: all arguments live during the call.
        let done =
            unsafe { ek_chunks(db, text("c"), (&raw mut all).cast(), take_chunk, &mut no_error()) };
        assert_eq!(done, 0);
        all
    };
    let all = list();
    assert_eq!((all.len(), all[0].0, all[1].0), (4, i64::MIN, first));
    assert_eq!((all[3].1, all[3].2), (first + 3 * DAY, 1));
    let writer = begin(db);
    put(writer, first + 1, &mut error);
    let drop = |before, kept: &mut Vec<(u64, u64)>| {
        let (to, mut error) = ((&raw mut *kept).cast(), no_error());
        // SAFETY: all arguments live during the call.
        unsafe { ek_drop_chunks(db, text("c"), before, null(), to, take_kept, &raw mut error) }
    };
    let mut kept = Vec::new();
    assert_eq!((drop(first + 2 * DAY, &mut kept), kept.len()), (2, 1), "one is written to");
    commit(writer);
    assert_eq!((drop(first + 2 * DAY, &mut kept), list().len()), (1, 1));
    let mut units = 0;
    // SAFETY: all arguments live during the call.
    unsafe {
        assert_eq!(ek_retain(db, text("c"), &raw mut units), 1);
        assert_eq!((units, ek_chunk_unit(db, text("c"))), (864_000, 1));
        assert_eq!(
            (ek_chunk_unit(db, text("t")), ek_retain(db, text("t"), &raw mut units)),
            (-1, 0)
        );
        let mut none: Vec<(i64, i64, u64)> = Vec::new();
        let to = (&raw mut none).cast();
        assert_eq!(ek_chunks(db, text("t"), to, take_chunk, &raw mut error), -1);
        assert_eq!(error.kind, EkKind::Invalid, "it is not chunked");
    }
    let many = begin(db);
    // SAFETY: the transaction is open.
    unsafe { ek_set_chunk_limit(many, 0) };
    commit(many);
    std::mem::drop(handle);
    close(db);
}
