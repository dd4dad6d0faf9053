//! A server that shows a certificate whose key it does not have: the shape that an accelerator or a
//! key service takes.
//!
//! ```sh
//! cargo run -p tls --example remote_signer
//! ```
#![expect(
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example that does not work is to say so"
)]

mod remote;

use std::sync::Arc;

use tls::signing::{KeyOperations as _, ProviderId, Signed};
use tls::{
    Certificate, ClientAuth, ClientContext, ClientOptions, Handshake, Resumption, Roots,
    ServerContext, ServerOptions, Verify, Version,
};

use remote::Remote;

/// Shakes hands in memory.
fn main() {
    let name = "a.example";
    let issued = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let (chain, key) = (issued.cert.pem(), issued.signing_key.serialize_pem());
    let certificate = Certificate::from_chain_for(ProviderId(0), chain.as_bytes()).unwrap();
    let fingerprint = certificate.key_handle().unwrap().fingerprint();
    let mut signer = Remote::start(vec![(fingerprint, key)]);

    let versions = Version::Tls12..=Version::Tls13;
    let accepting = ServerContext::new(ServerOptions {
        certificates: vec![Arc::new(certificate)],
        versions: versions.clone(),
        cipher_suites: Vec::new(),
        groups: Vec::new(),
        alpn: Vec::new(),
        client_auth: ClientAuth::Off,
        client_names: Vec::new(),
        resumption: Resumption::Tickets,
    });
    let connecting = ClientContext::new(ClientOptions {
        verify: Verify::Roots(Arc::new(Roots::from_pem(chain.as_bytes()).unwrap())),
        certificate: None,
        versions,
        cipher_suites: Vec::new(),
        groups: Vec::new(),
        alpn: Vec::new(),
        names: Vec::new(),
    });
    let mut client = Handshake::connect(&Arc::new(connecting.unwrap()), name).unwrap();
    let mut server = Handshake::accept(&Arc::new(accepting.unwrap()));
    while !(client.is_done() && server.is_done()) {
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        client.poll_output(&mut to_server);
        server.on_bytes(&to_server).unwrap();
        if let Some(job) = server.pending() {
            println!("the server asks for {:?}", job.scheme);
            signer.submit(0, job, 0);
            // A worker would see to its other connections now.
            let signed = std::iter::from_fn(|| {
                signer.wait();
                Some(signer.poll(0))
            });
            let Signed { result, .. } = signed.flatten().next().unwrap();
            server.on_signature(result).unwrap();
        }
        server.poll_output(&mut to_client);
        client.on_bytes(&to_client).unwrap();
    }
    println!("{:?}", server.finish().unwrap().facts);
}
