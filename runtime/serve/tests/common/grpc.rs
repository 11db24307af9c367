//! Calls of the server's gRPC methods over HTTP/2, on the same address as HTTP/1

use super::Server;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;

pub type Sender = http2::SendRequest<Full<bytes::Bytes>>;

pub async fn connect(server: &Server) -> Sender {
    let stream = tokio::net::TcpStream::connect(&server.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Returns the message without its gRPC frame header, or the status and its text.
pub async fn call_bytes(
    sender: &mut Sender,
    method: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Result<Vec<u8>, (u32, String)> {
    let mut request = hyper::Request::post(format!("http://x/inference.GRPCInferenceService/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = sender.send_request(request.body(Full::new(body.into())).unwrap()).await.unwrap();
    let head = response.headers().clone();
    let collected = response.into_body().collect().await.unwrap();
    let trailers = collected.trailers().cloned().unwrap_or_default();
    let text = |name: &str| head.get(name).or(trailers.get(name)).map(|v| v.to_str().unwrap().to_string());
    match text("grpc-status").as_deref() {
        Some("0") => Ok(collected.to_bytes()[5..].to_vec()),
        Some(code) => Err((code.parse().unwrap(), decoded(&text("grpc-message").unwrap_or_default()))),
        None => panic!("no status: {head:?}"),
    }
}

/// Decodes percent encoding; `%20` is a space.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |all, part| {
        all + &char::from(u8::from_str_radix(&part[..2], 16).unwrap()).to_string() + &part[2..]
    })
}

pub fn framed(message: &impl Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    [&[0][..], &(bytes.len() as u32).to_be_bytes(), &bytes].concat()
}

pub async fn call<P: Message + Default>(
    sender: &mut Sender,
    method: &str,
    message: &impl Message,
) -> Result<P, (u32, String)> {
    let bytes = call_bytes(sender, method, &[], framed(message)).await?;
    Ok(P::decode(&bytes[..]).unwrap())
}
