"""What tests share: real servers, benches of protocol parts, injected bugs."""
