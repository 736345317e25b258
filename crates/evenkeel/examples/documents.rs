//! Documents under paths, with tags: listed by folder, found by tag, changed only as they were when
//! they were read.
//!
//! `cargo run --example documents -- [DIRECTORY]` (without one, in memory)

use evenkeel::{Database, Direction, Options, Result, exactly, record, starting_with};

record! {
    /// A document.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Document in "documents" {
        path: String as Text { max: 500 },
        revision: u32,
        body: String,
    }
    key(path)
}

record! {
    /// A tag of a document.
    pub struct Tag in "tags" {
        tag: String as Text { max: 50 },
        path: String as Text { max: 500 },
    }
    key(tag, path)
    index by_path(path)
}

fn create(db: &Database) -> Result<()> {
    db.create_table_of::<Document>()?;
    db.create_table_of::<Tag>()
}

fn get(db: &Database, path: &str) -> Result<Option<Document>> {
    db.transact(|txn| txn.records()?.get(path))
}

/// Writes a document with its tags, if the present one is still the revision that was read (0:
/// there was none). The new revision, or none.
fn write(db: &Database, read: u32, path: &str, body: &str, new: &[&str]) -> Result<Option<u32>> {
    db.transact(|txn| {
        let (documents, tags) = (txn.records::<Document>()?, txn.records::<Tag>()?);
        let present = documents.get_for_update(path)?.map_or(0, |document| document.revision);
        if present != read {
            return Ok(None);
        }
        let (path, body) = (path.to_string(), body.to_string());
        for tag in tags.by("by_path", exactly(&path), Direction::Forward)? {
            tags.delete((&tag?.tag, &path))?;
        }
        for tag in new {
            tags.insert(&Tag { tag: tag.to_string(), path: path.clone() })?;
        }
        documents.put(&Document { path, revision: read + 1, body })?;
        Ok(Some(read + 1))
    })
}

/// The paths of the documents in a folder and below.
fn list(db: &Database, folder: &str) -> Result<Vec<String>> {
    db.transact(|txn| {
        let found = txn.table("documents")?.scan(starting_with(folder), Direction::Forward)?;
        found.map(|row| row?.get("path")).collect()
    })
}

/// The documents with a tag.
fn tagged(db: &Database, tag: &str) -> Result<Vec<Document>> {
    db.transact(|txn| {
        let (documents, tags) = (txn.records::<Document>()?, txn.records::<Tag>()?);
        let found = tags.scan(exactly(tag), Direction::Forward)?;
        found.filter_map(|tag| tag.and_then(|tag| documents.get(&tag.path)).transpose()).collect()
    })
}

fn main() -> Result<()> {
    let db = match std::env::args().nth(1) {
        Some(directory) => Database::open(directory)?,
        None => Database::open_with("unused", Options::in_memory())?,
    };
    create(&db)?;
    write(&db, 0, "recipes/bread", "Flour, water, salt.", &["food", "baking"])?;
    write(&db, 0, "recipes/soup", "Leeks, water, salt.", &["food"])?;
    write(&db, 0, "letters/1", "Dear reader,", &[])?;
    write(&db, 1, "recipes/bread", "Flour, water, salt, time.", &["baking"])?;
    println!("{:?}", list(&db, "recipes/")?);
    println!("{:?}", tagged(&db, "baking")?);
    println!("{:?}", get(&db, "letters/1")?);
    db.close()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_changed_only_as_it_was_read() {
        let db = Database::open_with("unused", Options::in_memory()).expect("opens");
        create(&db).expect("creates");
        assert_eq!(write(&db, 0, "a", "one", &["x", "y"]).expect("writes"), Some(1));
        assert_eq!(write(&db, 0, "a", "two", &[]).expect("writes"), None);
        assert_eq!(write(&db, 1, "a", "two", &["y"]).expect("writes"), Some(2));
        assert_eq!(tagged(&db, "x").expect("reads"), []);
        let found = tagged(&db, "y").expect("reads");
        let body = "two".to_string();
        assert_eq!(found, [Document { path: "a".to_string(), revision: 2, body }]);
        assert_eq!(get(&db, "a").expect("reads").as_ref(), found.first());
        assert_eq!(get(&db, "b").expect("reads"), None);
    }

    #[test]
    fn a_folder_lists_what_is_in_it() {
        let db = Database::open_with("unused", Options::in_memory()).expect("opens");
        create(&db).expect("creates");
        for path in ["a", "a/2", "a/1", "a0", "b/1"] {
            write(&db, 0, path, "", &[]).expect("writes");
        }
        assert_eq!(list(&db, "a/").expect("reads"), ["a/1", "a/2"]);
        assert_eq!(list(&db, "").expect("reads").len(), 5);
    }
}
