//! The JSON Schema of a configuration file, for editors.

use serde_json::{Value as Json, json};

use crate::file::File;
use crate::filters::FilterKinds;
use crate::shape::schema_of;

/// The JSON Schema (draft 2020-12) of a file with these filters.
///
/// It comes from the types in [`crate::file`], and files are checked against the same schema.
#[must_use]
pub fn schema<F>(kinds: &FilterKinds<F>) -> Json {
    let mut schema = schema_of::<File>();
    const LISTENER: &str = "/properties/listeners/items/properties";
    for holder in [LISTENER, &format!("{LISTENER}/chains/items/properties")] {
        if let Some(items) = schema.pointer_mut(&format!("{holder}/filters/items")) {
            *items = kinds.schema();
        }
    }
    if let Some(schema) = schema.as_object_mut() {
        let title = json!("Strait configuration");
        schema.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        schema.insert("title".to_owned(), title);
    }
    schema
}
