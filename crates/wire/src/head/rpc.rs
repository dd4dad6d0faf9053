//! What the head of a call of RPC says beside its fields.

use serde::{Deserialize, Serialize};

use super::{RequestHead, ResponseHead, Span};
use crate::rpc::Asked;

impl RequestHead<'_> {
    /// What is called, if it is a call of RPC. Then [`Head::path`](RequestHead::path) is
    /// `/service/method`, the method of HTTP is [`Method::Other`](super::Method::Other), and there is no host.
    #[must_use]
    pub fn rpc(&self) -> Option<Rpc<'_>> {
        let facts = &self.index.rpc;
        facts.is_rpc.then(|| Rpc {
            facts,
            service: self.bytes(facts.service),
            method: self.bytes(facts.method),
            version: self.bytes(facts.version),
            group: self.bytes(facts.group),
        })
    }
}

/// What a call of RPC says beside its fields.
#[derive(Clone, Copy, Debug)]
pub struct Rpc<'h> {
    facts: &'h RpcFacts,
    service: &'h [u8],
    method: &'h [u8],
    version: &'h [u8],
    group: &'h [u8],
}

impl<'h> Rpc<'h> {
    /// The name of the service.
    #[must_use]
    pub const fn service(&self) -> &'h [u8] {
        self.service
    }

    /// The method of it.
    #[must_use]
    pub const fn method(&self) -> &'h [u8] {
        self.method
    }

    /// The version of the service; empty if there is none.
    #[must_use]
    pub const fn version(&self) -> &'h [u8] {
        self.version
    }

    /// The group of the service; empty if there is none.
    #[must_use]
    pub const fn group(&self) -> &'h [u8] {
        self.group
    }

    /// How long its client waits, in ms; 0 if that is not said.
    #[must_use]
    pub const fn timeout_millis(&self) -> u32 {
        self.facts.timeout_millis
    }

    /// Whether there will be no answer.
    #[must_use]
    pub const fn is_one_way(&self) -> bool {
        self.facts.is_one_way
    }

    /// What its answer has to agree with.
    #[must_use]
    pub const fn asked(&self) -> Asked {
        self.facts.asked
    }
}

impl ResponseHead<'_> {
    /// The status of the response in its RPC protocol's own numbers, if it is of one.
    #[must_use]
    pub fn rpc_code(&self) -> Option<u16> {
        self.index.rpc.is_rpc.then_some(self.index.rpc.code)
    }

    /// What its frame looked like: [`Asked::form`].
    #[must_use]
    pub fn rpc_form(&self) -> u64 {
        self.index.rpc.asked.form
    }
}

/// Properties of a call of RPC. Those of one that is none are old: only `is_rpc` is reset.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RpcFacts {
    pub(crate) is_rpc: bool,
    pub(crate) is_one_way: bool,
    /// The status of a response.
    pub(crate) code: u16,
    pub(crate) timeout_millis: u32,
    pub(crate) asked: Asked,
    pub(crate) service: Span,
    pub(crate) method: Span,
    pub(crate) version: Span,
    pub(crate) group: Span,
}
