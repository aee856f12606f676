#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_link::fuzz::upgrade(data));
