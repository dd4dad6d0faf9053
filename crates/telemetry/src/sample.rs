//! An exchange for the tests of this crate.

use crate::events::{ExchangeFinished, Fault, LabelId, Stages};

/// A plain GET that went well.
pub(crate) fn exchange() -> ExchangeFinished<'static> {
    ExchangeFinished {
        listener: LabelId { slot: 0, generation: 0 },
        weighted: None,
        rule: Some((LabelId { slot: 0, generation: 0 }, 1)),
        cluster: Some(LabelId { slot: 0, generation: 0 }),
        subset: b"unit=a",
        endpoint: b"127.0.0.1:9000",
        client: b"192.0.2.7",
        method: b"GET",
        target: b"/api/items?page=2",
        host: b"shop.example.com",
        request_id: b"7f3c1e0a-5d7b-4a51-9d3e-0c6f5d1f2a10",
        user_agent: b"curl/7.88.1",
        server_name: b"shop.example.com",
        tls_version: b"TLSv1.3",
        tls_cipher: b"TLS_AES_128_GCM_SHA256",
        peer_identity: b"spiffe://example.org/ns/shop/sa/web",
        version: 11,
        status: 200,
        cause: None,
        failures: 0,
        fault: Fault::None,
        endpoint_id: None,
        cause_detail: b"",
        failed_attempts: b"",
        captures: b"",
        is_reply: false,
        request_bytes: 0,
        response_bytes: 1024,
        attempts: 1,
        grpc: None,
        is_tunnel: false,
        // 2026-11-21T04:14:27.123456Z
        started_at: 1_795_234_467_123_456_000,
        stages: Stages {
            accept: 0,
            read_head: 1_200,
            route: 800,
            request_body: 0,
            retries: 0,
            pool_wait: 0,
            connect: 0,
            upstream_write: 6_500,
            first_byte: 184_000,
            response: 2_300,
            downstream_write: 7_150,
            total: 201_950,
        },
    }
}
