//! A hundred processes take each other's place while ghz calls methods with streams in both directions, as fast as it is answered: no
//! call fails, no connection is opened anew, and what ghz counted is what Strait did.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{handover, upgrade_often};
use crate::claim::Claim;
use crate::claims::grpc;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::process::Process;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Ghz, Peer::GrpcServer], holds };

/// What ghz has to know of the service of the interoperability tests.
const SERVICE: &str = r#"
syntax = "proto3";
package grpc.testing;
message Payload { bytes body = 2; }
message ResponseParameters { int32 size = 1; }
message StreamingOutputCallRequest {
  repeated ResponseParameters response_parameters = 2;
  Payload payload = 3;
}
message StreamingOutputCallResponse { Payload payload = 1; }
service TestService {
  rpc FullDuplexCall(stream StreamingOutputCallRequest) returns (stream StreamingOutputCallResponse);
}
"#;

const MESSAGE: &str =
    r#"{ "response_parameters": [{ "size": 3000 }], "payload": { "body": "AAECAwQFBgcICQ==" } }"#;

/// Of ghz: calls at a time are eight for each.
const CONNECTIONS: u32 = 4;

/// How long it calls.
const SECONDS: u32 = 60;

fn holds(lab: &Lab) -> Result<()> {
    let server = grpc::Server::start(lab)?;
    let file = handover(lab);
    let options = Options { cluster: "protocol: http2", file: &file, ..Options::default() };
    let strait = Strait::forwarding_to(lab, server.address, options)?;
    let program = Peer::Ghz.program().context("ghz")?;
    let service = lab.write("service.proto", SERVICE)?;
    let report = lab.folder().join("report.json");
    let arguments = [
        "--insecure",
        &format!("--proto={}", service.display()),
        "--call=grpc.testing.TestService/FullDuplexCall",
        "--stream-call-count=20",
        "--stream-interval=5ms",
        &format!("--data={MESSAGE}"),
        &format!("--connections={CONNECTIONS}"),
        &format!("--concurrency={}", CONNECTIONS * 8),
        &format!("--duration={SECONDS}s"),
        "--duration-stop=wait",
        "--format=json",
        &format!("--output={}", report.display()),
        &strait.address().to_string(),
    ];
    let mut ghz = Process::start(lab.folder(), program, &arguments)?;
    wait::until("calls", wait::SOON, || {
        strait.metric("strait_exchanges_finished_total").is_ok_and(|calls| calls > 0.0)
    })?;
    let upstreams = strait.metric("strait_upstream_connections_opened_total")?;
    upgrade_often(lab, &strait)?;
    ensure!(ghz.is_running(), "it has ended before the handovers: {}", ghz.output());
    ensure!(ghz.wait(wait::SOON * 12)?.success(), "{}", ghz.output());
    let report: Value = serde_json::from_str(&std::fs::read_to_string(report)?)?;
    let counted = |pointer| report.pointer(pointer).and_then(Value::as_f64);
    let (calls, good) = (counted("/count"), counted("/statusCodeDistribution/OK"));
    ensure!(calls.is_some_and(|calls| calls > 1000.0) && calls == good, "{report}");
    let opened = strait.metric("strait_downstream_connections_opened_total")?;
    ensure!(opened == f64::from(CONNECTIONS), "{opened} connections");
    let now = strait.metric("strait_upstream_connections_opened_total")?;
    ensure!(now == upstreams, "{now} upstream connections, and {upstreams} before");
    let finished = strait.metric("strait_exchanges_finished_total")?;
    ensure!(calls == Some(finished), "{finished} exchanges, and ghz counted {calls:?}");
    Ok(())
}
