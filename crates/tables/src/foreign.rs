//! Foreign keys: the request (`ForeignKeySpec`), the catalog's form (`ForeignKeyDef`), and the
//! links in memory between the tables that have such keys (children) and those they refer to
//! (parents).
//!
//! A link is what row operations enforce. The link of a key that is being added is *provisional*:
//! it is enforced, and the catalog does not have the key yet (`foreign_add`).
//!
//! A key names tables and columns by their ids, so renames leave it as it is. It needs an index of
//! the child, or its clustered key, that begins with its columns, and one of the parent that begins
//! with the parent's columns; the parent's need not be unique. A definition for which this does not
//! hold is refused, and so is a later change after which it would not hold.

use crate::schema::{TableDef, TableSpec};
use crate::table::Table;
use evenkeel_base::sync::RwLock;
use evenkeel_base::{Code, Error, Result, TableId};
use evenkeel_format::catalog::{
    ForeignKeyColumnEntry, ForeignKeyEntry, ForeignKeyParentEntry, IndexState, PartEntry,
    ReferenceAction,
};
use evenkeel_format::{ColumnType, limits};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// A requested foreign key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignKeySpec {
    /// Name, unique in the table.
    pub name: String,
    /// Names of its columns.
    pub columns: Vec<String>,
    /// The table that its rows refer to; the table itself may be named.
    pub parent: String,
    /// Names of the parent's columns, one for each column.
    pub parent_columns: Vec<String>,
    /// What a delete of a parent row does.
    pub on_delete: ReferenceAction,
    /// What a change of a parent row's key does.
    pub on_update: ReferenceAction,
    /// The parent need not exist: the key then waits for a table of its name, and refuses every row
    /// that refers to something.
    pub may_await: bool,
}

impl ForeignKeySpec {
    /// A key that refuses the delete, and a change of the key, of a parent row that rows refer to.
    pub fn new(
        name: &str,
        columns: &[&str],
        parent: &str,
        parent_columns: &[&str],
    ) -> ForeignKeySpec {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect();
        ForeignKeySpec {
            name: name.to_string(),
            columns: owned(columns),
            parent: parent.to_string(),
            parent_columns: owned(parent_columns),
            ..ForeignKeySpec::default()
        }
    }
    /// Sets what a delete of a parent row does.
    #[must_use]
    pub fn on_delete(self, on_delete: ReferenceAction) -> ForeignKeySpec {
        ForeignKeySpec { on_delete, ..self }
    }
    /// Sets what a change of a parent row's key does.
    #[must_use]
    pub fn on_update(self, on_update: ReferenceAction) -> ForeignKeySpec {
        ForeignKeySpec { on_update, ..self }
    }
}

/// A foreign key in the catalog's form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignKeyDef {
    /// Its number in the table.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// The table that its rows refer to; zero while there is no such table.
    pub parent: TableId,
    /// What a delete of a parent row does.
    pub on_delete: ReferenceAction,
    /// What a change of a parent row's key does.
    pub on_update: ReferenceAction,
    /// Ids of its columns, each with that of the parent's column (zero without a parent).
    pub columns: Vec<(u16, u16)>,
    /// The parent that it waits for.
    pub awaited: Option<Awaited>,
}

/// A table that a foreign key names and that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The name of the table.
    pub table: String,
    /// The names of its columns, one for each column of the key.
    pub columns: Vec<String>,
}

/// The key of a table that begins with a foreign key's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOf {
    /// The clustered key.
    Clustered,
    /// The index at this position.
    Index(usize),
}

pub(crate) fn invalid(name: &str, why: impl std::fmt::Display) -> Error {
    Error::new(Code::ForeignKeyInvalid).with("constraint", name).with("why", why)
}

fn is_valid(state: IndexState) -> bool {
    matches!(state, IndexState::Valid(_))
}

/// True if both columns have the same values; lengths may differ.
fn same_type(a: ColumnType, b: ColumnType) -> bool {
    match (a, b) {
        (ColumnType::Bytes { .. }, ColumnType::Bytes { .. })
        | (ColumnType::Text { .. }, ColumnType::Text { .. }) => true,
        (a, b) => a == b,
    }
}

impl TableDef {
    /// Removes a foreign key. # Errors: `ForeignKeyMissing`.
    pub(crate) fn drop_foreign_key(&mut self, name: &str) -> Result<()> {
        let count = self.foreign_keys.len();
        self.foreign_keys.retain(|key| key.name != name);
        match self.foreign_keys.len() < count {
            true => Ok(()),
            false => Err(missing(&self.name, name)),
        }
    }
}

pub(crate) fn missing(table: &str, name: &str) -> Error {
    Error::new(Code::ForeignKeyMissing).with("table", table).with("constraint", name)
}

impl ForeignKeyDef {
    /// The key of the parent that begins with the parent's columns, in any order: the clustered key
    /// or the first such index, as InnoDB chooses. An index that is added while rows are written
    /// comes last, so operations with the states before and after it lock in the same key.
    pub(crate) fn parent_key(&self, parent: &TableDef) -> Option<KeyOf> {
        let begins = |parts: &[PartEntry]| self.begin(parts, |pair| pair.1);
        if !parent.entry.hidden_key && begins(&parent.entry.primary) {
            return Some(KeyOf::Clustered);
        }
        let index =
            parent.indexes.iter().position(|i| is_valid(i.entry.state) && begins(&i.entry.parts));
        index.map(KeyOf::Index)
    }

    /// The key of the child that begins with its columns, in any order.
    pub(crate) fn child_key(&self, child: &TableDef) -> Option<KeyOf> {
        let begins = |parts: &[PartEntry]| self.begin(parts, |pair| pair.0);
        let index =
            child.indexes.iter().position(|i| is_valid(i.entry.state) && begins(&i.entry.parts));
        let clustered = !child.entry.hidden_key && begins(&child.entry.primary);
        index.map(KeyOf::Index).or(clustered.then_some(KeyOf::Clustered))
    }

    /// The refusal of a key whose child or parent is this chunked table.
    pub(crate) fn of_chunked(&self, table: &TableDef) -> Error {
        let error = Error::new(Code::ChunkedTable).with("table", &table.name);
        error.with("constraint", &self.name).with("why", "a chunked table has no foreign keys")
    }

    /// True if a table's key begins with its columns, whole and in any order; `side` takes the
    /// table's column of a pair.
    fn begin(&self, parts: &[PartEntry], side: impl Fn(&(u16, u16)) -> u16) -> bool {
        parts.get(..self.columns.len()).is_some_and(|parts| {
            parts.iter().all(|part| {
                part.prefix == 0 && self.columns.iter().any(|pair| side(pair) == part.column)
            })
        })
    }

    /// Checks that the child has what the key needs of it.
    ///
    /// # Errors
    /// The reason why it has not.
    pub(crate) fn check_child(&self, child: &TableDef) -> std::result::Result<(), String> {
        if child.chunking.is_some() {
            return Err(format!("table {} is chunked", child.name));
        }
        for (id, _) in &self.columns {
            if child.column_by_id(*id).is_none_or(|column| !column.is_live()) {
                return Err(format!("a column of {} is gone", child.name));
            }
        }
        match self.child_key(child) {
            Some(_) => Ok(()),
            None => Err(format!("table {} has no index that begins with its columns", child.name)),
        }
    }

    /// Checks that two definitions have what the key needs.
    ///
    /// # Errors
    /// The reason why they have not.
    pub(crate) fn check(
        &self,
        child: &TableDef,
        parent: &TableDef,
    ) -> std::result::Result<(), String> {
        if let Some(chunked) = [child, parent].iter().find(|def| def.chunking.is_some()) {
            return Err(format!("table {} is chunked", chunked.name));
        }
        for (id, parent_id) in &self.columns {
            let live = |def: &TableDef, id: u16| {
                let column = def.column_by_id(id).filter(|column| column.is_live());
                column.cloned().ok_or_else(|| format!("a column of {} is gone", def.name))
            };
            let (column, of_parent) = (live(child, *id)?, live(parent, *parent_id)?);
            let sets_null = [self.on_delete, self.on_update].contains(&ReferenceAction::SetNull);
            if sets_null && !column.entry.nullable {
                return Err(format!("SET NULL: column {} takes no NULL", column.name));
            }
            if !same_type(column.entry.ty, of_parent.entry.ty) {
                return Err(format!(
                    "column {} is of type {}, column {} of the parent of type {}",
                    column.name, column.entry.ty, of_parent.name, of_parent.entry.ty
                ));
            }
        }
        let Some(parent_key) = self.parent_key(parent) else {
            return Err(format!(
                "table {} has no primary key and no index that begins with these columns",
                parent.name
            ));
        };
        let Some(child_key) = self.child_key(child) else {
            return Err(format!("table {} has no index that begins with its columns", child.name));
        };
        let (of_parent, of_child) = (parts(parent, parent_key), parts(child, child_key));
        for (id, parent_id) in &self.columns {
            let collation = |parts: &[PartEntry], id: u16| {
                parts.iter().find(|part| part.column == id).and_then(|part| part.collation)
            };
            if collation(of_parent, *parent_id) != collation(of_child, *id) {
                return Err("the keys of child and parent have other collations".to_string());
            }
        }
        Ok(())
    }
}

/// The parts of a key.
fn parts(def: &TableDef, key: KeyOf) -> &[PartEntry] {
    match key {
        KeyOf::Clustered => &def.entry.primary,
        KeyOf::Index(at) => &def.indexes[at].entry.parts,
    }
}

/// Makes the foreign keys of a new table. `parents` are the tables that they name, without the new
/// one.
///
/// # Errors
/// `ForeignKeyInvalid`, `ColumnMissing`, `NameInvalid`.
pub(crate) fn foreign_keys_of(
    def: &TableDef,
    spec: &TableSpec,
    parents: &[Arc<Table>],
) -> Result<Vec<ForeignKeyDef>> {
    let limit = limits::FOREIGN_KEYS_MAX;
    if spec.foreign_keys.len() > limit {
        let error = invalid(&def.name, "too many foreign keys");
        return Err(error.with("count", spec.foreign_keys.len()).with("limit", limit));
    }
    let mut keys: Vec<ForeignKeyDef> = Vec::new();
    for (number, spec) in (1..).zip(&spec.foreign_keys) {
        if keys.iter().any(|key| key.name == spec.name) {
            return Err(invalid(&spec.name, "a foreign key of this name exists"));
        }
        keys.push(foreign_key_of(def, number, spec, parents)?);
    }
    Ok(keys)
}

/// Makes one foreign key of a table; as `foreign_keys_of`.
///
/// # Errors
/// As `foreign_keys_of`; `TableMissing`.
pub(crate) fn foreign_key_of(
    def: &TableDef,
    number: u32,
    spec: &ForeignKeySpec,
    parents: &[Arc<Table>],
) -> Result<ForeignKeyDef> {
    crate::schema::check_name(&spec.name)?;
    let named = |table: &&Arc<Table>| table.layout().def.name == spec.parent;
    let parent = match spec.parent == def.name {
        true => Some(Arc::new(def.clone())),
        false => parents.iter().find(named).map(|table| table.layout().def.clone()),
    };
    let mut key = ForeignKeyDef {
        number,
        name: spec.name.clone(),
        parent: parent.as_ref().map_or(TableId::ZERO, |parent| parent.id),
        on_delete: spec.on_delete,
        on_update: spec.on_update,
        columns: pairs(spec, def, parent.as_deref())?,
        awaited: None,
    };
    let chunked =
        [Some(def), parent.as_deref()].into_iter().flatten().find(|def| def.chunking.is_some());
    if let Some(chunked) = chunked {
        return Err(key.of_chunked(chunked));
    }
    match parent {
        Some(parent) => key.check(def, &parent),
        None if spec.may_await => {
            let (table, columns) = (spec.parent.clone(), spec.parent_columns.clone());
            key.awaited = Some(Awaited { table, columns });
            key.check_child(def)
        }
        None => return Err(Error::new(Code::TableMissing).with("table", &spec.parent)),
    }
    .map_err(|why| invalid(&spec.name, why))?;
    Ok(key)
}

/// Ids of the columns of a requested key.
fn pairs(
    spec: &ForeignKeySpec,
    child: &TableDef,
    parent: Option<&TableDef>,
) -> Result<Vec<(u16, u16)>> {
    let (columns, of_parent) = (&spec.columns, &spec.parent_columns);
    if columns.len() != of_parent.len() || !(1..=limits::KEY_PARTS_MAX).contains(&columns.len()) {
        let error = invalid(&spec.name, "it needs as many columns of the parent as of its own");
        return Err(error.with("columns", columns.len()).with("parent_columns", of_parent.len()));
    }
    let mut pairs: Vec<(u16, u16)> = Vec::new();
    for (at, (column, name)) in columns.iter().zip(of_parent).enumerate() {
        let of_parent_id = parent.map_or(Ok(0), |parent| parent.column(name).map(|c| c.id))?;
        let pair = (child.column(column)?.id, of_parent_id);
        let twice = of_parent[..at].contains(name) || pairs.iter().any(|(a, _)| *a == pair.0);
        if twice {
            return Err(invalid(&spec.name, "a column twice in one key"));
        }
        pairs.push(pair);
    }
    Ok(pairs)
}

/// Foreign keys while the catalog is read.
#[derive(Default)]
pub(crate) struct ForeignLoading {
    keys: BTreeMap<u32, (String, ForeignKeyEntry)>,
    columns: BTreeMap<u32, (String, ForeignKeyColumnEntry)>,
    /// Names of parents that do not exist.
    parents: BTreeMap<u32, String>,
}

/// The item of the catalog's entry of a column of a key.
pub(crate) fn column_item(number: u32, position: usize) -> u32 {
    number * limits::KEY_PARTS_MAX as u32 + position as u32
}

impl ForeignLoading {
    pub fn take_key(&mut self, item: u32, name: &str, body: &[u8]) -> Result<()> {
        self.keys.insert(item, (name.to_string(), ForeignKeyEntry::decode(body)?));
        Ok(())
    }

    pub fn take_column(&mut self, item: u32, name: &str, body: &[u8]) -> Result<()> {
        let entry = ForeignKeyColumnEntry::decode(body)?;
        self.columns.insert(item, (name.to_string(), entry));
        Ok(())
    }

    pub fn take_parent(&mut self, item: u32, name: &str, body: &[u8]) -> Result<()> {
        ForeignKeyParentEntry::decode(body)?;
        self.parents.insert(item, name.to_string());
        Ok(())
    }

    /// The keys by number, or what is missing.
    pub fn finish(mut self) -> std::result::Result<Vec<ForeignKeyDef>, &'static str> {
        let mut keys = Vec::new();
        for (number, (name, entry)) in self.keys {
            if !(1..=limits::FOREIGN_KEYS_MAX as u32).contains(&number) {
                return Err("number of a foreign key");
            }
            let (mut columns, mut names) = (Vec::new(), Vec::new());
            for position in 0..usize::from(entry.columns) {
                let column = self.columns.remove(&column_item(number, position));
                let (name, column) = column.ok_or("a column of a foreign key is missing")?;
                columns.push((column.column, column.parent_column));
                names.push(name);
            }
            let ForeignKeyEntry { parent, on_delete, on_update, .. } = entry;
            let awaited = match (self.parents.remove(&number), parent == TableId::ZERO) {
                (Some(table), true) if names.iter().all(|name| !name.is_empty()) => {
                    Some(Awaited { table, columns: names })
                }
                (None, false) if names.iter().all(String::is_empty) => None,
                _ => return Err("the parent of a foreign key"),
            };
            keys.push(ForeignKeyDef {
                number,
                name,
                parent,
                on_delete,
                on_update,
                columns,
                awaited,
            });
        }
        match self.columns.is_empty() && self.parents.is_empty() {
            true => Ok(keys),
            false => Err("a part of no foreign key"),
        }
    }
}

/// A foreign key between two open tables. Tables own the links, so links do not own tables.
pub(crate) struct Link {
    pub key: ForeignKeyDef,
    child: Weak<Table>,
    parent: Weak<Table>,
    /// The catalog does not have the key yet.
    provisional: AtomicBool,
    /// The key was dropped.
    dropped: AtomicBool,
    /// The key has another parent, or another name, and a link of its own for that.
    replaced: AtomicBool,
}

impl Link {
    pub fn new(key: ForeignKeyDef, child: &Arc<Table>, parent: &Arc<Table>) -> Arc<Link> {
        let (child, parent) = (Arc::downgrade(child), Arc::downgrade(parent));
        Arc::new(Link::between(key, child, parent))
    }

    fn between(key: ForeignKeyDef, child: Weak<Table>, parent: Weak<Table>) -> Link {
        let [provisional, dropped, replaced] = [false; 3].map(AtomicBool::new);
        Link { key, child, parent, provisional, dropped, replaced }
    }

    /// True once another link stands for the key. An operation that goes by this one and has not
    /// written its row yet begins anew, behind the barrier.
    pub fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::SeqCst)
    }

    /// As `new`, for a key that the catalog does not have yet.
    pub fn provisional(key: ForeignKeyDef, child: &Arc<Table>, parent: &Arc<Table>) -> Arc<Link> {
        let link = Link::new(key, child, parent);
        link.provisional.store(true, Ordering::SeqCst);
        link
    }

    /// True until the catalog has the key.
    pub fn is_provisional(&self) -> bool {
        self.provisional.load(Ordering::SeqCst)
    }

    /// True once the key was dropped; what it needed may be gone. An operation that has entered
    /// both tables before it asks keeps what the key needs.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::SeqCst)
    }

    /// The catalog has the key.
    pub fn set_permanent(&self) {
        self.provisional.store(false, Ordering::SeqCst);
    }

    /// A key that waits for its parent.
    pub fn awaiting(key: ForeignKeyDef, child: &Arc<Table>) -> Arc<Link> {
        Arc::new(Link::between(key, Arc::downgrade(child), Weak::new()))
    }

    /// As `awaiting`, for a key that the catalog does not have yet.
    pub fn provisional_awaiting(key: ForeignKeyDef, child: &Arc<Table>) -> Arc<Link> {
        let link = Link::awaiting(key, child);
        link.provisional.store(true, Ordering::SeqCst);
        link
    }

    /// True if the key waits for its parent.
    pub fn is_awaiting(&self) -> bool {
        self.key.awaited.is_some()
    }

    /// The table that has the key, unless it is dropped.
    pub fn child(&self) -> Option<Arc<Table>> {
        self.child.upgrade()
    }

    /// The table that its rows refer to, which is dropped only behind the child.
    pub fn parent(&self) -> Result<Arc<Table>> {
        self.parent.upgrade().ok_or_else(|| Error::internal("the parent of a foreign key is gone"))
    }
}

/// An operation whose row left a key, while rows that refer to the key are changed.
pub(crate) struct CascadeStep {
    /// The table of the row.
    pub table: Arc<Table>,
    /// The row is updated; otherwise it is deleted.
    pub updates: bool,
    /// The foreign key by which rows are changed now.
    pub link: Arc<Link>,
}

/// The foreign keys that concern a table.
#[derive(Clone, Default)]
pub(crate) struct Links {
    /// Its own keys.
    pub parents: Vec<Arc<Link>>,
    /// The keys that refer to it.
    pub children: Vec<Arc<Link>>,
}

/// The links of a table; most tables have none, and their rows cost a look at a flag.
#[derive(Default)]
pub(crate) struct LinkList {
    any: AtomicBool,
    links: RwLock<Arc<Links>>,
}

impl LinkList {
    /// The links, if there are any.
    pub fn get(&self) -> Option<Arc<Links>> {
        self.any.load(Ordering::SeqCst).then(|| self.links.read().clone())
    }

    fn change(&self, change: impl FnOnce(&mut Links)) {
        let mut links = self.links.write();
        let mut changed = (**links).clone();
        change(&mut changed);
        // Which of several errors a row meets first does not depend on the order of changes.
        changed.parents.sort_by(|a, b| a.key.name.cmp(&b.key.name));
        changed.children.sort_by(|a, b| a.key.name.cmp(&b.key.name));
        self.any
            .store(!changed.parents.is_empty() || !changed.children.is_empty(), Ordering::SeqCst);
        *links = Arc::new(changed);
    }

    /// Adds a link to both its tables.
    pub fn link(link: &Arc<Link>, child: &Table, parent: &Table) {
        child.links.change(|links| links.parents.push(link.clone()));
        parent.links.change(|links| links.children.push(link.clone()));
    }

    /// Removes a link from both its tables.
    pub fn cut(link: &Arc<Link>) {
        link.dropped.store(true, Ordering::SeqCst);
        LinkList::detach(link);
    }

    /// Removes a link for which another one stands.
    pub fn replace(link: &Arc<Link>) {
        link.replaced.store(true, Ordering::SeqCst);
        LinkList::detach(link);
    }

    /// The link that stands for the key of a replaced one, unless the key is dropped.
    pub fn successor(&self, link: &Link) -> Option<Arc<Link>> {
        let own = self.own().into_iter();
        own.filter(|own| !own.is_replaced()).find(|own| own.key.number == link.key.number)
    }

    fn detach(link: &Arc<Link>) {
        let both = [link.child(), link.parent.upgrade()];
        for table in both.iter().flatten() {
            table.links.change(|links| {
                links.parents.retain(|l| !Arc::ptr_eq(l, link));
                links.children.retain(|l| !Arc::ptr_eq(l, link));
            });
        }
    }

    /// The links of the table's own keys.
    pub fn own(&self) -> Vec<Arc<Link>> {
        self.get().map(|links| links.parents.clone()).unwrap_or_default()
    }

    /// Adds proved keys to the definition of their table.
    ///
    /// # Errors
    /// `ForeignKeyMissing` if a name is of none of them; `ForeignKeyInvalid` if another key has it.
    pub fn make_permanent(&self, names: &[String], def: &mut TableDef) -> Result<()> {
        for name in names {
            let links = self.own();
            let proved = links.iter().find(|link| link.is_provisional() && link.key.name == *name);
            let proved = proved.ok_or_else(|| missing(&def.name, name))?;
            if def.foreign_keys.iter().any(|key| key.name == *name) {
                return Err(invalid(name, "a foreign key of this name exists"));
            }
            def.foreign_keys.push(proved.key.clone());
        }
        def.foreign_keys.sort_by_key(|key| key.number);
        Ok(())
    }

    /// The catalog has the keys of this definition.
    pub fn are_permanent(&self, def: &TableDef) {
        let has = |link: &Link| def.foreign_keys.iter().any(|k| k.number == link.key.number);
        self.own().iter().filter(|link| has(link)).for_each(|link| link.set_permanent());
    }

    /// Adds a link without a parent to its table.
    pub fn await_parent(link: &Arc<Link>, child: &Table) {
        child.links.change(|links| links.parents.push(link.clone()));
    }

    /// Removes the links of a dropped table from their other tables.
    pub fn unlink(&self, table: &Arc<Table>) {
        for link in self.get().iter().flat_map(|links| links.parents.clone()) {
            if let Ok(parent) = link.parent()
                && !Arc::ptr_eq(&parent, table)
            {
                parent.links.change(|links| links.children.retain(|l| !Arc::ptr_eq(l, &link)));
            }
        }
    }

    /// Refuses to empty or drop a table to which rows of other tables may refer.
    ///
    /// # Errors
    /// `ForeignKeyNeeds`.
    pub fn check_unreferenced(&self, table: &Arc<Table>) -> Result<()> {
        for link in self.get().iter().flat_map(|links| &links.children) {
            if let Some(child) = link.child().filter(|child| !Arc::ptr_eq(child, table)) {
                return Err(needs(&link.key, &child).with("table", &table.layout().def.name));
            }
        }
        Ok(())
    }

    /// Checks that every link has what it needs when its tables have these definitions. A key that
    /// its table's definition no longer has needs nothing.
    ///
    /// # Errors
    /// `ForeignKeyNeeds`.
    pub fn check_after(&self, def_of: &dyn Fn(&Arc<Table>) -> TableDef) -> Result<()> {
        for link in self.get().iter().flat_map(|links| links.parents.iter().chain(&links.children))
        {
            let Some(child) = link.child() else { continue };
            let def = def_of(&child);
            let stays = |key: &ForeignKeyDef| key.number == link.key.number;
            if !link.is_provisional() && !def.foreign_keys.iter().any(stays) {
                continue;
            }
            let checked = match link.is_awaiting() {
                true => link.key.check_child(&def),
                false => link.key.check(&def, &def_of(&link.parent()?)),
            };
            checked.map_err(|why| needs(&link.key, &child).with("why", why))?;
        }
        Ok(())
    }
}

fn needs(key: &ForeignKeyDef, child: &Table) -> Error {
    Error::new(Code::ForeignKeyNeeds)
        .with("constraint", &key.name)
        .with("child", &child.layout().def.name)
}

/// Refuses to load rows past the checks of foreign keys.
///
/// # Errors
/// `ForeignKeyNeeds`.
pub(crate) fn check_loadable(table: &Table) -> Result<()> {
    match table.links.own().first() {
        None => Ok(()),
        Some(link) => {
            Err(needs(&link.key, table)
                .with("why", "rows of a table with foreign keys are inserted"))
        }
    }
}
