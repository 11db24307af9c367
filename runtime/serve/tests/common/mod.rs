//! Starts the server on a free loopback port and speaks HTTP to it

#![allow(dead_code)] // Each test file uses only a part.

pub mod grpc;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Path of the server; `None` in other crates, whose tests build the program themselves.
const PROGRAM: Option<&str> = option_env!("CARGO_BIN_EXE_sardonyx-serve");

/// A running server, which is killed when it is dropped.
pub struct Server {
    child: Child,
    pub address: String,
}

pub struct Response {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Server {
    pub fn start(path: &Path, args: &[&str]) -> Server {
        let program = PROGRAM.unwrap_or_else(|| panic!("only tests of the server's crate have its program"));
        Server::start_program(Path::new(program), path, args)
    }

    /// Writes the server's log (standard error) to a file.
    pub fn start_logged(path: &Path, args: &[&str], log: std::fs::File) -> Server {
        let mut command = Command::new(PROGRAM.unwrap_or_default());
        command.stderr(log);
        Server::started(command, path, args)
    }

    pub fn start_program(program: &Path, path: &Path, args: &[&str]) -> Server {
        Server::started(Command::new(program), path, args)
    }

    fn started(mut command: Command, path: &Path, args: &[&str]) -> Server {
        command.arg(path).args(["--listen", "127.0.0.1:0"]).args(args).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit_once("http://").unwrap_or_else(|| panic!("{line:?}")).1.to_string();
        Server { child, address }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    pub fn get(&self, path: &str) -> Response {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
    }

    pub fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        self.send(&request(path, headers, body))
    }

    pub fn post_json(&self, path: &str, body: &Value) -> Response {
        self.post(path, &[], body.to_string().as_bytes())
    }

    /// Sends bytes and reads until the server closes the connection.
    pub fn send(&self, bytes: &[u8]) -> Response {
        let mut stream = self.connect();
        // A server that refuses early closes the connection while the rest is being sent.
        let _ = stream.write_all(bytes);
        read_response(&mut stream)
    }

    pub fn signal(&self, signal: i32) {
        // The child is reaped only later, so its process ID cannot belong to another process.
        let done = Command::new("kill").arg(format!("-{signal}")).arg(self.child.id().to_string()).status().unwrap();
        assert!(done.success());
    }

    /// Waits for the server to exit and returns its exit code; panics after 60 s.
    pub fn wait(&mut self) -> i32 {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < until, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The memory mappings of the process.
    pub fn maps(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/maps", self.child.id())).unwrap()
    }

    /// Artifacts that are still mapped although the file was deleted.
    pub fn mapped_and_deleted(&self) -> Vec<String> {
        self.maps().lines().filter(|line| line.ends_with(".sdx (deleted)")).map(str::to_string).collect()
    }

    /// Number of file descriptors that the process has open.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Resident memory of the process, in bytes.
    pub fn resident_bytes(&self) -> usize {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn request(path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text =
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
    text += "\r\n";
    [text.as_bytes(), body].concat()
}

pub fn read_response(stream: &mut TcpStream) -> Response {
    let mut bytes = vec![];
    // The server resets the connection after its answer if it refused the body.
    let _ = stream.read_to_end(&mut bytes);
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no response: {:?}", String::from_utf8_lossy(&bytes)));
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|l| l.split_once(": ")).map(|(n, v)| (n.to_lowercase(), v.to_string())).collect();
    Response { status, headers, body: bytes[end + 4..].to_vec() }
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// The message of an error response with this status.
    pub fn refused(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()["error"].as_str().unwrap_or_default().to_string()
    }

    /// The data of the first output.
    pub fn numbers(&self) -> Vec<f32> {
        assert_eq!(self.status, 200, "{}", self.text());
        let list = self.json()["outputs"][0]["data"].clone();
        list.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
    }
}

/// A request for the model of `two_layers`; its rows begin with different numbers.
pub fn rows_request(rows: usize, seed: usize) -> Value {
    json!({ "inputs": [{ "name": "x", "shape": [rows, 8], "datatype": "FP32", "data": rows_data(rows, seed) }] })
}

/// Rows of numbers with many significant digits.
pub fn rows_data(rows: usize, seed: usize) -> Vec<f32> {
    (0..rows * 8).map(|k| 1.0 / ((k * 7 + seed) as f32 + 3.0)).collect()
}
