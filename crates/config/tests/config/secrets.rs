//! Values whose names say that they are secrets are shown nowhere.

use std::collections::BTreeMap;

use config::{FilterKinds, Loader, effective};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::sample::loader;

/// A listener with what `filter` says in its `headers` filter.
fn with(filter: &str) -> String {
    format!(
        "listeners:
  - name: edge
    address: 127.0.0.1:80
    filters:
      - headers: {filter}
    routes: all
routes:
  - {{ name: all, rules: [] }}
"
    )
}

/// Everything that is reported of a wrong text, for people and for programs.
fn reported(text: &str) -> String {
    let Err(errors) = loader().load("f", text) else { panic!("an error is expected: {text}") };
    format!("{errors}\n{}", serde_json::to_string(&errors).unwrap())
}

#[test]
fn no_error_in_or_beside_a_secret_tells_it() {
    for filter in [
        // The value itself is wrong, and the hint would repeat it.
        "{ request: { set: { x-internal-token: 5453453 } } }",
        "{ request: { set: { authorization: [5453453] } } }",
        "{ request: { set: { \"x token\": \"5453453\" } } }",
        // Something else on its line is wrong.
        "{ request: { set: { Authorization: \"Bearer 5453453\", x-a: 1 } } }",
        "{ request: { set: { x-a: 1, set-cookie: id=5453453 } } }",
        "{ request: { set: { 'api-key': 5453453a }, reomve: [] } }",
        "{ request: { set: { authorization:\n          \"Bearer 5453453\", x-a: 1 } } }",
        // A key stands twice.
        "{ request: { set: { x-token: 5453453a, x-token: 5453453b } } }",
        // It is no YAML.
        "{ request: { set: { x-token: \"5453453 } } }",
        "\n          request:\n            set:\n              password: 5453453: x",
        "\n          request:\n            set:\n              password:\n                \"a\n                 5453453 \\q\"",
        "\n          request:\n            set:\n              x-secret: !tag 5453453",
    ] {
        let reported = reported(&with(filter));
        assert!(!reported.contains("5453453"), "{filter}\n{reported}");
        assert!(reported.contains("f:"), "{reported}");
    }
}

#[test]
fn what_stands_under_another_name_is_told_with_its_line() {
    let text = with("{ request: { set: { x-a: 5453453 } } }");
    let reported = reported(&text);
    assert!(reported.contains("x-a: 5453453: text is needed here; put it in quotes"), "{reported}");
    assert!(reported.contains("\n  |       - headers: { request"), "{reported}");
}

#[test]
fn of_a_secret_all_but_the_value_is_told() {
    let reported = reported(&with("{ request: { set: { x-token: 5453453 } } }"));
    let first = reported.lines().next().unwrap();
    assert_eq!(
        first,
        "f:5:47: listeners[0].filters[0].headers.request.set.x-token: ***: text is needed here; \
         the correction is not shown, because it may reveal the secret"
    );
    // The key is none, and a hint about it tells nothing.
    let reported = self::reported("listeners: []\ntokens: {}\n");
    assert!(
        reported.starts_with("f:2:1: tokens: \"tokens\": this key is unknown; known are"),
        "{reported}"
    );
}

/// A filter's type that accepts less than its schema says may repeat what it was given.
#[test]
fn a_type_that_refuses_a_secret_does_not_tell_it() {
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only what is said about it counts")]
    struct Signature {
        /// The key.
        #[schemars(with = "String")]
        key: u32,
    }
    let mut kinds = FilterKinds::new();
    kinds.register("sign", |_: Signature| Ok(())).unwrap();
    let text = with("").replace("headers: ", "sign: { key: a5453453 }");
    let Err(errors) = Loader::new(kinds).unwrap().load("f", &text) else { panic!() };
    assert!(!format!("{errors}{errors:?}").contains("5453453"), "{errors}");
    assert!(errors.to_string().contains("u32 is needed here"), "{errors}");
}

#[test]
fn the_name_of_a_filter_says_nothing_about_what_it_holds() {
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    #[derive(Default)]
    struct Auth {
        /// Who.
        realm: String,
        /// With what.
        passwords: BTreeMap<String, String>,
    }
    let mut kinds = FilterKinds::new();
    kinds.register("auth", |auth: Auth| Ok((auth.realm, auth.passwords))).unwrap();
    let mut loader = Loader::new(kinds).unwrap();
    let text = |realm: &str| {
        with("").replace("headers: ", &format!("auth: {{ realm: {realm}, passwords: {{ a: b }} }}"))
    };
    let snapshot = loader.load("f", &text("shop")).unwrap();
    assert_eq!(snapshot.listeners[0].filters[0].1["a"], "b");
    let shown = effective(&snapshot)["listeners"][0]["filters"][0].to_string();
    assert_eq!(shown, r#"{"auth":{"realm":"shop","passwords":"***"}}"#);
    // Nor does what the snapshot keeps of the file.
    assert_eq!(snapshot.listeners[0].source.filters[0].to_string(), shown);
    let Err(errors) = loader.load("f", &text("77")) else { panic!() };
    assert_eq!(errors.errors[0].value, "77");
}
