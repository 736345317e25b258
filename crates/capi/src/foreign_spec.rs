//! Foreign keys as C gives them, and the engine's specifications of them.

use crate::value::{EkBytes, slice};
use evenkeel::{Code, Database, Error, ForeignKeySpec, ReferenceAction, Result, TableDef};

/// Actions of a foreign key, by number.
const ACTIONS: [ReferenceAction; 4] = [
    ReferenceAction::Restrict,
    ReferenceAction::NoAction,
    ReferenceAction::Cascade,
    ReferenceAction::SetNull,
];

fn action(number: u8, name: &str) -> Result<ReferenceAction> {
    ACTIONS.get(usize::from(number)).copied().ok_or_else(|| {
        let error = Error::new(Code::ForeignKeyInvalid).with("constraint", name);
        error.with("why", "no such action")
    })
}

pub(crate) fn number(action: ReferenceAction) -> u8 {
    ACTIONS.iter().position(|known| *known == action).unwrap_or(0) as u8
}

/// A foreign key to be made.
#[repr(C)]
pub struct EkForeign {
    /// Its name.
    pub name: EkBytes,
    /// The table that its rows refer to.
    pub parent: EkBytes,
    /// Names of its columns.
    pub columns: *const EkBytes,
    /// Names of the parent's columns, one for each column.
    pub parent_columns: *const EkBytes,
    /// The number of columns.
    pub columns_len: usize,
    /// What a delete of a parent row does: 0 RESTRICT, 1 NO ACTION, 2 CASCADE, 3 SET NULL.
    pub on_delete: u8,
    /// What a change of a parent row's key does.
    pub on_update: u8,
    /// Not 0: the parent need not exist.
    pub may_await: u8,
}

/// The column's name as the table spells it.
fn spelled<'a>(names: impl Iterator<Item = &'a str> + Clone, name: &str) -> String {
    let exact = names.clone().find(|known| *known == name);
    let other = || names.clone().find(|known| known.to_lowercase() == name.to_lowercase());
    exact.or_else(other).unwrap_or(name).to_string()
}

pub(crate) fn names_of(def: &TableDef) -> Vec<String> {
    def.live_columns().iter().map(|column| column.name.clone()).collect()
}

/// The given keys of a table with these columns.
///
/// # Safety
/// All pointers are valid during the call.
pub(crate) unsafe fn foreign_specs(
    db: &Database,
    (table, own): (&str, &[String]),
    given: &[EkForeign],
) -> Result<Vec<ForeignKeySpec>> {
    let one = |given: &EkForeign| {
        // SAFETY: by contract of the caller.
        let (name, parent, columns, parent_columns) = unsafe {
            (
                given.name.text()?,
                given.parent.text()?,
                slice(given.columns, given.columns_len),
                slice(given.parent_columns, given.columns_len),
            )
        };
        let of_parent = match parent == table {
            true => own.to_vec(),
            false => db.definition(parent).map(|def| names_of(&def)).unwrap_or_default(),
        };
        let list = |names: &[EkBytes], known: &[String]| {
            let known = known.iter().map(String::as_str);
            // SAFETY: by contract of the caller.
            let name = |name: &EkBytes| Ok(spelled(known.clone(), unsafe { name.text()? }));
            names.iter().map(name).collect::<Result<Vec<_>>>()
        };
        let mut spec = ForeignKeySpec::new(name, &[], parent, &[]);
        spec.columns = list(columns, own)?;
        spec.parent_columns = list(parent_columns, &of_parent)?;
        spec.on_delete = action(given.on_delete, name)?;
        spec.on_update = action(given.on_update, name)?;
        spec.may_await = given.may_await != 0;
        Ok(spec)
    };
    given.iter().map(one).collect()
}
