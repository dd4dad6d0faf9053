//! The types that connections are written down in: none changes without the number of the form.
//!
//! `tests/schemas` has them as of each form, without names of fields, which postcard does not write. Files of single states
//! (`tests/forms`) show what is written down of these states; here are all types that could be, also those of TLS. Where the
//! list differs, either the form has changed: raise `save::VERSION`, and keep the former list. Or a type has another name, or
//! is none of a connection's: remove the list. Then run `BLESS=1 cargo test -p proxy --test schema`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use proxy::save::VERSION;
use quote::ToTokens;
use syn::{Attribute, Fields, Generics, Item};

/// Folders with types that a connection consists of.
const SOURCES: [&str; 3] = ["src", "../wire/src", "../tls/src"];

#[test]
fn no_type_changes_without_the_number_of_the_form() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut types = BTreeSet::new();
    for folder in SOURCES {
        let mut files = Vec::new();
        collect(&package.join(folder), &mut files);
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let parsed = syn::parse_file(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            list(&parsed.items, &mut types);
        }
    }
    assert!(types.len() > 100, "{types:?}");
    let mut listed = String::new();
    types.iter().for_each(|line| writeln!(listed, "{line}").unwrap());
    let kept = package.join(format!("tests/schemas/{VERSION}"));
    if std::env::var_os("BLESS").is_some() && !kept.exists() {
        fs::write(&kept, &listed).unwrap();
    }
    let known = fs::read_to_string(&kept).unwrap_or_default();
    let known: BTreeSet<String> = known.lines().map(str::to_owned).collect();
    let differ: Vec<_> = types.symmetric_difference(&known).collect();
    assert!(
        differ.is_empty(),
        "form {VERSION} has other types (see this test's first lines): {differ:#?}"
    );
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry of it").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|it| it == "rs") {
            files.push(path);
        }
    }
}

fn list(items: &[Item], types: &mut BTreeSet<String>) {
    for item in items {
        match item {
            Item::Mod(module) if !is_test(&module.attrs) => {
                list(module.content.as_ref().map_or(&[], |(_, items)| items), types);
            }
            Item::Struct(it) if is_written(&it.attrs) => {
                let name = named(&it.ident.to_string(), &it.generics);
                types.insert(format!("struct {name}{}{}", of_serde(&it.attrs), fields(&it.fields)));
            }
            Item::Enum(it) if is_written(&it.attrs) => {
                let variants = it.variants.iter().map(|variant| {
                    format!(
                        "{}{}{}",
                        variant.ident,
                        of_serde(&variant.attrs),
                        fields(&variant.fields)
                    )
                });
                let variants: Vec<_> = variants.collect();
                let name = named(&it.ident.to_string(), &it.generics);
                types.insert(format!(
                    "enum {name}{} {{ {} }}",
                    of_serde(&it.attrs),
                    variants.join(", ")
                ));
            }
            // What is written in another way has its own code.
            Item::Impl(it) => {
                let of = it.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
                if of.is_some_and(|it| it.ident == "Serialize" || it.ident == "Deserialize") {
                    types.insert(it.to_token_stream().to_string());
                }
            }
            _ => {}
        }
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|it| it.path().is_ident("cfg") && tokens(it).contains("test"))
}

fn is_written(attributes: &[Attribute]) -> bool {
    let mut derives = attributes.iter().filter(|it| it.path().is_ident("derive"));
    derives.any(|it| ["Serialize", "Deserialize"].iter().any(|name| tokens(it).contains(name)))
}

/// What its attributes say of how it is written.
fn of_serde(attributes: &[Attribute]) -> String {
    let of_serde = attributes.iter().filter(|it| it.path().is_ident("serde"));
    of_serde.map(|it| format!(" {}", tokens(it))).collect()
}

fn named(name: &str, generics: &Generics) -> String {
    format!("{name}{}", tokens(generics))
}

fn fields(fields: &Fields) -> String {
    let types = fields.iter().map(|it| format!("{}{}", tokens(&it.ty), of_serde(&it.attrs)));
    let types: Vec<_> = types.collect();
    if types.is_empty() { String::new() } else { format!("({})", types.join(", ")) }
}

fn tokens(of: &impl ToTokens) -> String {
    of.to_token_stream().to_string()
}
