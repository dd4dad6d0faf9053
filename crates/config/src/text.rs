//! What only a text needs: its tree with the places of all pieces, what may be written and the checks of that, further files, and the pages
//! and the schema that say what may be written.
//!
//! What sources deliver is text as well, and goes the same way; what is built of it knows nothing of all this.

pub(crate) mod include;
mod reference;
pub(crate) mod schema;
pub(crate) mod shape;
pub(crate) mod tree;
pub(crate) mod unchanged;

pub use self::reference::reference;
pub use self::schema::schema;
pub use self::shape::SchemaError;
pub use self::tree::FILE_BYTES_MAX;
