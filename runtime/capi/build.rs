//! `libsardonyx.so` is found at run time as `libsardonyx.so.0`: another number means another ABI

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsardonyx.so.0");
}
